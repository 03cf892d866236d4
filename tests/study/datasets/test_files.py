"""Where data files are found, and how they are downloaded: against a server on this machine."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ccrank.errors import CcrankError
from ccrank.study.datasets import datasets
from ccrank.study.datasets.locate import DataFile, data_cache, digest_of, find, locate

CONTENT = b"the data\n" * 50_000
RANKINGS = {"demelo/gold_rankings/a.rankings": b"0\ta\n", "crowd/gold_rankings/b.rankings": b"0\tb\n"}


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def zip_of(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tar_of(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CCRANK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CCRANK_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache" / "data"


@pytest.fixture
def server():
    """A server with `pages` by path: bytes, an address to redirect to, or a length that is not kept."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.asked.append(self.path)
            page = self.server.pages.get(self.path)
            if isinstance(page, bytes):
                self.send_response(200)
                self.send_header("Content-Length", str(len(page) + (10 if "cut" in self.path else 0)))
                self.end_headers()
                self.wfile.write(page)
            elif isinstance(page, str):
                self.send_response(302)
                self.send_header("Location", page)
                self.end_headers()
            else:
                self.send_error(404)

        def log_message(self, *args):
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.pages, web.asked = {}, []
    web.address = f"http://127.0.0.1:{web.server_port}"
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield web
    web.shutdown()
    web.server_close()


def leftovers(cache):
    return [path for path in cache.rglob("*") if path.is_file() or path.name.startswith(".")]


def test_download_once(cache, server):
    """A file comes through a redirect, is checked, kept in the cache, and not asked for again."""
    server.pages = {"/there": f"{server.address}/data.csv", "/data.csv": CONTENT}
    wanted = DataFile("set/data.csv", f"{server.address}/there", sha256(CONTENT))
    for _ in range(2):
        path = locate(wanted)
        assert path == cache / "set" / "data.csv"
        assert path.read_bytes() == CONTENT
    assert server.asked == ["/there", "/data.csv"]
    assert leftovers(cache) == [path]


def test_download_speaks_only_to_stderr(cache, server, capsys):
    """Standard output stays free for results."""
    server.pages = {"/data.csv": CONTENT}
    locate(DataFile("set/data.csv", f"{server.address}/data.csv", sha256(CONTENT)))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("page", "cause"),
    [
        ("/data.csv", "has changed: sha256 0000.* expected, got " + sha256(CONTENT)),
        ("/absent", "404"),
        ("/cut", "ended after"),
        ("/elsewhere", "unknown url type: ftp"),
    ],
)
def test_a_failed_download_leaves_nothing(cache, server, page, cause):
    """Wrong checksum, 404, a broken transfer, a redirect off the web: a clear error, nothing in the cache."""
    server.pages = {"/data.csv": CONTENT, "/cut": CONTENT, "/elsewhere": "ftp://127.0.0.1/x"}
    wanted = DataFile("set/data.csv", f"{server.address}{page}", "0" * 64)
    with pytest.raises(CcrankError, match=cause) as caught:
        locate(wanted)
    message = str(caught.value)
    assert f"put it at {cache / 'set' / 'data.csv'}" in message
    assert f"published at {wanted.url}" in message
    assert leftovers(cache) == []


def test_unreachable_and_other_schemes(cache, server):
    """A server that does not answer and an address that is no web address are said plainly."""
    server.shutdown()
    server.server_close()
    with pytest.raises(CcrankError, match=r"cannot download a/b from http.*refused.*put it at"):
        locate(DataFile("a/b", f"{server.address}/x", "0" * 64))
    with pytest.raises(CcrankError, match="unknown url type: file"):
        locate(DataFile("a/b", "file:///etc/hostname", "0" * 64))


def test_a_file_out_of_a_zip(cache, server):
    """Of the files in a zip that end right, the one with the checksum is taken; none of them is an error."""
    server.pages = {
        "/a.zip": zip_of({"notes.csv": b"no", "deep/data.csv": CONTENT, "x.png": b"?"}),
        "/b.zip": b"no zip",
    }
    wanted = DataFile("set/data.csv", f"{server.address}/a.zip", sha256(CONTENT), zipped=".csv")
    assert locate(wanted).read_bytes() == CONTENT
    other = DataFile("set/other.csv", f"{server.address}/a.zip", sha256(b"other"), zipped=".csv")
    with pytest.raises(CcrankError, match=f"got {sha256(b'no')}, {sha256(CONTENT)}"):
        locate(other)
    with pytest.raises(CcrankError, match="not a zip file"):
        locate(DataFile("set/third.csv", f"{server.address}/b.zip", "0" * 64, zipped=".csv"))


def folder_of(address, contents=RANKINGS):
    return DataFile(
        path="scales",
        url=f"{address}/a.tar.gz",
        sha256=digest_of(contents.items()),
        members=r"[^/]+/data/((?:demelo|crowd)/gold_rankings/[^/]+\.rankings)",
        holds="*/gold_rankings/*.rankings",
    )


def test_a_folder_out_of_an_archive(cache, server):
    """Only the wanted files of an archive are kept, wherever its root is; names that climb out are not."""
    extra = {
        "repo-1/README.md": b"no",
        "repo-1/data/../../evil.rankings": b"no",
        "repo-1/data/x/c.rankings": b"no",
    }
    members = {f"repo-1/data/{name}": content for name, content in RANKINGS.items()}
    server.pages = {"/a.tar.gz": tar_of({**extra, **members})}
    (cache / "scales").mkdir(parents=True)  # an empty folder is not taken for the data
    path = locate(folder_of(server.address))
    assert {file.relative_to(path).as_posix(): file.read_bytes() for file in leftovers(path)} == RANKINGS
    assert locate(folder_of(server.address)) == path
    assert server.asked == ["/a.tar.gz"]


def test_a_changed_archive_is_refused(cache, server):
    """One byte more in one file, a file too few, no archive, half an archive: refused, nothing kept."""
    name, content = next(iter(RANKINGS.items()))
    for page in (
        tar_of({f"r/data/{key}": value + b"x" for key, value in RANKINGS.items()}),
        tar_of({f"r/data/{name}": content}),
        tar_of({"r/other": b""}),
        b"no archive",
        tar_of({f"r/data/{key}": bytes(range(256)) * 99 for key in RANKINGS})[:200],
    ):
        server.pages = {"/a.tar.gz": page}
        with pytest.raises(CcrankError, match="cannot download scales"):
            locate(folder_of(server.address))
        assert leftovers(cache) == []


def test_digest_sees_names_and_borders():
    """The checksum ignores the order of files, and sees a moved border or a changed name."""
    pairs = [("a", b"12"), ("b", b"3")]
    assert digest_of(pairs) == digest_of(pairs[::-1])
    assert len({digest_of(p) for p in (pairs, [("a", b"1"), ("b", b"23")], [("a", b"12"), ("c", b"3")])}) == 3


def test_order_of_places(cache, tmp_path, monkeypatch):
    """A folder that is given is the only place looked in; else CCRANK_DATA comes before the cache."""
    wanted = DataFile("s/f.txt", "https://example.invalid/f.txt", None, other_names=("g.txt",))
    given, named = tmp_path / "given", tmp_path / "named"
    for folder in (given, named, cache):
        (folder / "s").mkdir(parents=True)
    (cache / "s" / "f.txt").write_text("cache")
    assert find(wanted) == cache / "s" / "f.txt"
    monkeypatch.setenv("CCRANK_DATA", str(named))
    assert find(wanted) == cache / "s" / "f.txt"
    (named / "s" / "g.txt").write_text("named")
    assert find(wanted) == named / "s" / "g.txt"
    assert find(wanted, given) is None
    with pytest.raises(CcrankError, match=r"there is no .*given.*put it at .*given"):
        locate(wanted, given)
    with pytest.raises(CcrankError, match="does not exist or is not a folder"):
        locate(wanted, tmp_path / "nowhere")


def test_a_stale_variable_is_named(cache, tmp_path, monkeypatch):
    """CCRANK_DATA set to no folder is an error, even if the cache has the file; a folder that is given comes first."""
    wanted = DataFile("f.txt", "https://example.invalid/f.txt", None)
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "f.txt").write_text("cache")
    for value in (tmp_path / "moved", cache / "f.txt"):
        monkeypatch.setenv("CCRANK_DATA", str(value))
        with pytest.raises(
            CcrankError, match=rf"CCRANK_DATA is set to {value}, which is not a folder.*unset"
        ):
            find(wanted)
        assert find(wanted, cache) == cache / "f.txt"
    monkeypatch.setenv("CCRANK_DATA", "")
    assert find(wanted) == cache / "f.txt"


def test_a_file_without_checksum_is_never_downloaded(cache, server):
    """What cannot be checked is asked of the user, not of the network."""
    server.pages = {"/f": CONTENT}
    with pytest.raises(CcrankError, match="f is not available; put it at"):
        locate(DataFile("f", f"{server.address}/f", None))
    assert server.asked == []


def test_cache_folder(monkeypatch, tmp_path):
    """CCRANK_CACHE, or the user's own cache folder."""
    monkeypatch.setenv("CCRANK_CACHE", str(tmp_path))
    assert data_cache() == tmp_path / "data"
    monkeypatch.delenv("CCRANK_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_cache() == tmp_path / ".cache" / "ccrank" / "data"


def test_pinned_checksums_are_those_of_the_data(data_dir):
    """The local files have the checksums that downloads are verified against."""
    seen = 0
    for dataset in datasets().values():
        for file in dataset.files:
            path = find(file, data_dir)
            if path is None or file.sha256 is None:
                continue
            if file.holds:
                contents = [(p.relative_to(path).as_posix(), p.read_bytes()) for p in path.glob(file.holds)]
                assert digest_of(contents) == file.sha256
            else:
                assert sha256(path.read_bytes()) == file.sha256
            seen += 1
    if not seen:
        pytest.skip(f"no data files in {data_dir}")
