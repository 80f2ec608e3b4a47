"""The command line. `main` is the entry point, `root` the tree of commands, `commands` has one module per command,
`demo` the demonstration. Imports every layer; nothing imports it.
"""
