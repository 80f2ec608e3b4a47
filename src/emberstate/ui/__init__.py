"""The web page of jobs: read-only, over locations, beside any job.

`app` has the routes, `security` decides who may ask, `views` make plain data of locations, `templates` HTML of that.
Imported only by `emberstate ui` and `pipeline.start(…, ui=True)`, since it needs the extra `ui`.
"""
