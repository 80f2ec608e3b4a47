"""The command line. `main` is the entry, `root` the tree of commands; `commands` and `demo` have one module per
command.
"""
