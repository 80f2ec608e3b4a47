"""`make_app`: the pages, each as HTML, as the part of it that changes, and as JSON.

A request names a location by its position among those given, and a file by its name among those of the package: no text
of a request ever becomes a path. Pages are made in the server's threads, each request with readers of its own.

Thread safety: as Starlette's applications; what requests share is `Location`, which is for any thread.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from emberstate.checkpoint.files.meta import library_version
from emberstate.errors import CheckpointCollectedError, EmberstateError, StateDeclarationError, StorageError
from emberstate.storage.interface import Storage
from emberstate.ui.locations import Location
from emberstate.ui.pages import PAGES, Page
from emberstate.ui.rendering import environment
from emberstate.ui.security import Guard
from emberstate.ui.shown import printable
from emberstate.ui.views.overview import overview

#: A request with this header gets the part of a page that changes.
_PART: Final = "x-part"
_STATIC: Final = ("app.js", "charts.js", "site.css", "uplot.js", "uplot.css", "uplot-license.txt", "icon.svg")


def make_app(
    storages: Sequence[Storage],
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    may_connect: Callable[[Scope], bool] | None = None,
) -> ASGIApp:
    """Return the application over some locations; `host` is what the server will listen on, for the guard."""
    locations = [Location(number, storage) for number, storage in enumerate(storages)]
    site = _Site(locations)
    routes = [
        Route("/", site.overview),
        Route("/index.json", site.overview),
        Route("/static/{name}", site.static),
        Route("/job/{number:int}", site.job),
        *(Route(f"/job/{{number:int}}/{page.name}", site.page(page)) for page in PAGES),
        *(Route(f"/job/{{number:int}}/{page.name}.json", site.page(page)) for page in PAGES),
    ]
    handlers: Any = {404: site.not_found}
    app = Starlette(routes=routes, exception_handlers=handlers)
    return Guard(app, host=host, token=token, login=site.login, may_connect=may_connect)


class _Site:
    """The endpoints."""

    def __init__(self, locations: list[Location]) -> None:
        self._locations = locations
        self._templates = environment()
        folder = resources.files("emberstate.ui") / "static"
        self._files = {name: (folder / name).read_bytes() for name in _STATIC}

    def overview(self, request: Request) -> Response:
        """All jobs."""
        view = overview(self._locations)
        return self._answer(request, "overview.html", view, {"page": None, "job": None, "title": "Jobs"})

    def job(self, request: Request) -> Response:
        """A job's address without a page."""
        location = self._location(request)
        return RedirectResponse(f"/job/{location.number}/{PAGES[0].name}", 303)

    def page(self, page: Page) -> Callable[[Request], Response]:
        """The endpoint of one of a job's pages."""

        def endpoint(request: Request) -> Response:
            location = self._location(request)
            about: dict[str, Any] = {"page": page, "title": page.title}
            try:
                view = page.view(location, request.query_params)
            except EmberstateError as error:
                about["job"] = overview([location])["jobs"][0]
                return self._answer(request, "problem.html", _problem(error), about, _status(error))
            # After the view, so that the line above a page is not older than the page.
            about["job"] = overview([location])["jobs"][0]
            return self._answer(request, f"{page.name}.html", view, about)

        return endpoint

    def static(self, request: Request) -> Response:
        """A file of the package."""
        name = request.path_params["name"]
        if name not in self._files:
            raise HTTPException(404)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response(self._files[name], media_type=kind)

    def not_found(self, request: Request, error: Exception) -> Response:
        """The page for everything else."""
        view = {"kind": "Not found", "message": "There is no such page.", "place": {}}
        return self._answer(request, "problem.html", view, {"page": None, "job": None, "title": "Not found"}, 404)

    def login(self, address: str, wrong: bool) -> str:
        """The form that asks for the token."""
        return self._templates.get_template("login.html").render(address=address, wrong=wrong)

    def _location(self, request: Request) -> Location:
        number: int = request.path_params["number"]
        if number >= len(self._locations):
            raise HTTPException(404)
        return self._locations[number]

    def _answer(
        self, request: Request, template: str, view: dict[str, Any], about: dict[str, Any], status: int = 200
    ) -> Response:
        if request.url.path.endswith(".json"):
            encoded = msgspec.json.encode({"job": about["job"], **view} if about["job"] else view)
            return Response(encoded, status, media_type="application/json")
        part = _PART in request.headers
        text = self._templates.get_template(template).render(
            view=view,
            pages=PAGES,
            locations=self._locations,
            version=library_version(),
            layout="part.html" if part else "layout.html",
            **about,
        )
        return HTMLResponse(text, status)


def _problem(error: EmberstateError) -> dict[str, Any]:
    place = {name: printable(str(value))[:300] for name, value in error.place.items()}
    return {"kind": type(error).__name__, "message": printable(str(error))[:4000], "place": place}


def _status(error: EmberstateError) -> int:
    if isinstance(error, StateDeclarationError):
        return 400
    if isinstance(error, CheckpointCollectedError):
        return 404
    return 503 if isinstance(error, StorageError) else 500
