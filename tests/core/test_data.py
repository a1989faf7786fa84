from __future__ import annotations

import hashlib
import http.server
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paperworks.core.data import DataCorrupt, DataFile, DataUnavailable, available, cache_folder, path

CONTENT = bytes(range(256)) * 400
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT, or what its path says goes wrong."""

    def do_GET(self) -> None:
        self.server.requested.append(self.path)  # type: ignore[attr-defined]
        if self.path == "/404":
            self.send_error(404)
            return
        self.send_response(200)
        if self.path != "/unsized-half":
            self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: len(CONTENT) // 2] if self.path.endswith("half") else CONTENT)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.requested = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def address(server: http.server.ThreadingHTTPServer) -> str:
    server.requested.clear()  # type: ignore[attr-defined]
    return f"http://127.0.0.1:{server.server_port}"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "PAPERWORKS_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PAPERWORKS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def named(url: str | None = None, name: str = "sub/a.bin", sha256: str = SHA256, build: str | None = None) -> DataFile:
    return DataFile("sle", name, sha256, "MIT", url=url, build=build)


def put(place: Path, content: bytes = CONTENT) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return place


def files(folder: Path) -> list[Path]:
    return [entry for entry in folder.rglob("*") if entry.is_file()]


def test_downloads_into_the_cache_once(
    address: str, cache: Path, server: http.server.ThreadingHTTPServer, capfd: pytest.CaptureFixture[str]
) -> None:
    file = named(f"{address}/a.bin")
    assert not available(file)
    first = path(file)
    assert first == cache / "data/sle/sub/a.bin"
    assert first.read_bytes() == CONTENT
    assert available(file)
    assert path(file) == first
    assert server.requested == ["/a.bin"]  # type: ignore[attr-defined]
    assert files(cache) == [first]
    assert capfd.readouterr() == ("", "")


def test_a_cached_file_needs_no_server(cache: Path) -> None:
    place = put(cache / "data/sle/sub/a.bin")
    assert path(named("http://127.0.0.1:1/a.bin")) == place


def test_no_download_when_told_so(address: str, server: http.server.ThreadingHTTPServer) -> None:
    with pytest.raises(DataUnavailable, match=r"^sle/sub/a\.bin is not on this machine: take it from http"):
        path(named(f"{address}/a.bin"), download=False)
    assert server.requested == []  # type: ignore[attr-defined]


def test_a_download_with_another_hash_is_not_stored(address: str, cache: Path) -> None:
    with pytest.raises(DataCorrupt, match="it was not stored") as caught:
        path(named(f"{address}/a.bin", sha256="0" * 64))
    assert SHA256 in str(caught.value)
    assert "0" * 64 in str(caught.value)
    assert "PAPERWORKS_DATA" in str(caught.value)
    assert files(cache) == []


@pytest.mark.parametrize("broken", ["half", "unsized-half"])
def test_an_interrupted_download_is_never_taken_for_the_whole(address: str, cache: Path, broken: str) -> None:
    with pytest.raises(DataUnavailable, match="PAPERWORKS_DATA"):
        path(named(f"{address}/{broken}"))
    assert files(cache) == []
    assert path(named(f"{address}/a.bin")).read_bytes() == CONTENT


def test_a_killed_download_leaves_no_file_under_the_name(
    address: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pooch

    def interrupted(self: Any, url: str, output: str, _: Any) -> None:
        Path(output).write_bytes(CONTENT[:10])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pooch.HTTPDownloader, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            path(named(f"{address}/a.bin"))
    assert files(cache) == []
    assert path(named(f"{address}/a.bin")).read_bytes() == CONTENT


@pytest.mark.parametrize(("url", "reason"), [("http://127.0.0.1:1/a.bin", "ConnectionError"), (None, "HTTP 404")])
def test_offline_says_file_address_and_variable(address: str, url: str | None, reason: str) -> None:
    url = url or f"{address}/404"
    with pytest.raises(DataUnavailable) as caught:
        path(named(url))
    message = str(caught.value)
    assert message == (
        f"sle/sub/a.bin is not on this machine and its download failed ({reason}): take it from {url}, "
        "then set PAPERWORKS_DATA to the folder that holds sle/sub/a.bin"
    )


def test_a_built_file_names_its_command(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAPERWORKS_DATA", str(tmp_path / "mine"))
    file = named(build="python tools/make_sle_data.py")
    with pytest.raises(DataUnavailable) as caught:
        path(file)
    assert str(caught.value) == (
        "sle/sub/a.bin is not on this machine: build it with `python tools/make_sle_data.py`, "
        f"then set PAPERWORKS_DATA (now {tmp_path / 'mine'}) to the folder that holds sle/sub/a.bin"
    )
    place = put(cache / "data/sle/sub/a.bin")
    assert path(file) == place


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_cache_that_cannot_be_written_says_where_and_what_moves_it(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    blocked = put(tmp_path / "file") / below
    monkeypatch.setenv("PAPERWORKS_CACHE", str(blocked))
    with pytest.raises(DataUnavailable, match="PAPERWORKS_CACHE moves the cache") as caught:
        path(named(f"{address}/a.bin"))
    for part in (str(blocked / "data/sle/sub"), "Not a directory", f"{address}/a.bin", "PAPERWORKS_DATA"):
        assert part in str(caught.value)
    assert not available(named(f"{address}/a.bin"))


def test_the_users_folder_wins_over_the_cache(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAPERWORKS_DATA", str(tmp_path / "mine"))
    cached = put(cache / "data/sle/sub/a.bin")
    file = named("http://127.0.0.1:1/a.bin")
    assert path(file) == cached
    mine = put(tmp_path / "mine/sle/sub/a.bin")
    assert path(file) == mine


def test_a_folder_without_the_file_falls_through_to_the_download(
    address: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAPERWORKS_DATA", str(tmp_path / "nowhere"))
    assert path(named(f"{address}/a.bin")) == cache / "data/sle/sub/a.bin"


@pytest.mark.parametrize("where", ["mine", "cache/data"])
def test_a_corrupt_file_is_reported_and_kept(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    server: http.server.ThreadingHTTPServer,
) -> None:
    monkeypatch.setenv("PAPERWORKS_DATA", str(tmp_path / "mine"))
    bad = put(tmp_path / where / "sle/sub/a.bin", CONTENT[:-1])
    file = named(f"{address}/a.bin")
    with pytest.raises(DataCorrupt, match=r"delete it, or replace it by sle/sub/a\.bin") as caught:
        path(file)
    for part in (str(bad), SHA256, hashlib.sha256(CONTENT[:-1]).hexdigest()):
        assert part in str(caught.value)
    assert not available(file)
    assert bad.exists()
    assert server.requested == []  # type: ignore[attr-defined]


def test_a_file_that_changes_in_place_is_hashed_again(cache: Path) -> None:
    place = put(cache / "data/sle/sub/a.bin")
    assert available(named(build="make a.bin"))
    put(place, CONTENT + b"more")
    assert not available(named(build="make a.bin"))
    put(place)
    assert available(named(build="make a.bin"))


@pytest.mark.untyped
@pytest.mark.parametrize(
    "name", ["../a", "a/../../b", "/etc/passwd", "", ".", "..", "a/..", "./a", "a//b", "a/", "//a"]
)
def test_names_stay_inside_their_folder(name: str) -> None:
    with pytest.raises(ValueError, match="name must be a relative path"):
        named("http://127.0.0.1/a", name=name)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slug": ".."}, "slug must be an identifier, got '..'"),
        ({"slug": "a/b"}, "slug must be an identifier"),
        ({"sha256": "ABC"}, "sha256 must be 64 lower-case hexadecimal digits, got 'ABC'"),
        ({"sha256": SHA256.upper()}, "sha256 must be"),
        ({"sha256": SHA256 + "\n"}, "sha256 must be"),
        ({"licence": ""}, "licence must not be empty"),
        ({"url": None}, "exactly one of url and build must be given, got None and None"),
        ({"build": "make"}, "exactly one of url and build must be given, got 'http://x' and 'make'"),
        ({"size": -1}, "size must be non-negative, got -1"),
    ],
)
def test_malformed_fields(change: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"slug": "sle", "name": "a", "sha256": SHA256, "licence": "MIT", "url": "http://x"}
    DataFile(**fields, size=3)
    with pytest.raises(ValueError, match="must") as caught:
        DataFile(**(fields | change))
    assert message in str(caught.value)


def test_the_cache_follows_the_variable_else_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PAPERWORKS_CACHE", "~/mine")
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAPERWORKS_CACHE", "relative")
    assert cache_folder() == tmp_path / "relative"
    monkeypatch.setenv("PAPERWORKS_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder().is_relative_to(tmp_path)
    assert cache_folder().name == "paperworks"


def test_errors_carry_the_exit_code_and_cross_processes() -> None:
    assert DataUnavailable.exit_code == DataCorrupt.exit_code == 3
    again = pickle.loads(pickle.dumps(DataCorrupt("why")))
    assert type(again) is DataCorrupt
    assert again.args == ("why",)


def test_importing_the_module_is_light() -> None:
    code = "import sys, paperworks.core.data; print({'numpy', 'pandas', 'pooch', 'requests'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_offline_is_kept_to(monkeypatch):
    monkeypatch.setenv("PAPERWORKS_OFFLINE", "1")
    with pytest.raises(DataUnavailable, match="not on this machine: take"):
        path(DataFile("sle", "a.csv", "0" * 64, "MIT", url="http://127.0.0.1:9/a.csv"))
