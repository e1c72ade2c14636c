"""The download against a hub of our own on this machine, which misbehaves on request."""

import fcntl
import hashlib
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import tiny_models

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("AGENTCOMPILE", str(ROOT / "build/release/agentcompile"))
PULL = (PROGRAM, "pull", "--retry-delay", "10")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = "org/tiny"
TOKEN = "hf_secret"
JOB_FAILED, WRONG_USAGE, BAD_INPUT = 1, 2, 3


def git_hash(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def safetensors(names):
    header = {
        name: {"dtype": "BOOL", "shape": [50_000], "data_offsets": [50_000 * i, 50_000 * (i + 1)]}
        for i, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + os.urandom(50_000 * len(names))


class Hub(ThreadingHTTPServer):
    """Serves `files`; `faults` maps a path to a list of actions, one used up by each request."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {
            "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
            "tokenizer.json": b"{}",
            "model.safetensors": safetensors(["a", "b"]),
            "README.md": b"not wanted",
            "pytorch_model.bin": b"not wanted either",
        }
        self.listing = None  # replaces the listing's files
        self.faults = {}
        self.requests = []  # (path, headers)
        self.ranges = True
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def siblings(self):
        entries = []
        for name, content in self.files.items():
            entry = {"rfilename": name, "size": len(content), "blobId": git_hash(content)}
            if name.endswith(".safetensors"):
                entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
            entries.append(entry)
        return entries

    def requested(self, name):
        return [headers for path, headers in self.requests if path.endswith("/" + name)]


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", headers=(), cut=None):
        self.send_response(status)
        for key, value in headers:
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if cut is None else body[:cut])
        if cut is not None:
            self.wfile.flush()
            self.connection.close()

    def do_GET(self):
        hub = self.server
        path = self.path.split("?")[0]
        name = path.rsplit("/", 1)[1]
        hub.requests.append((path, dict(self.headers)))
        pending = hub.faults.get(name, [])
        fault = pending.pop(0) if pending else None
        if fault and fault[0] == "status":
            return self.reply(fault[1], b"<html>an error page</html>", fault[2:])
        if fault and fault[0] == "redirect":
            return self.reply(302, b"moved", [("Location", fault[1])])
        if path.startswith("/api/models/"):
            files = hub.siblings() if hub.listing is None else hub.listing
            return self.reply(200, json.dumps({"sha": COMMIT, "siblings": files}).encode())
        if name not in hub.files:
            return self.reply(404)
        body = hub.files[name]
        if fault and fault[0] == "body":
            body = fault[1]
        status, headers = 200, []
        wanted = self.headers.get("Range")
        if wanted and hub.ranges:
            begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(body):
                return self.reply(416)
            headers = [("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")]
            if fault and fault[0] == "content-range":
                headers = [("Content-Range", fault[1])]
            status, body = 206, body[begin:]
        if fault and fault[0] == "slow":
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: fault[1]])
            self.wfile.flush()
            time.sleep(20)
            return None
        return self.reply(status, body, headers, cut=fault[1] if fault and fault[0] == "cut" else None)


@pytest.fixture
def hub():
    server = Hub()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def other_host():
    server = Hub()
    yield server
    server.shutdown()
    server.server_close()


def environment(hub, cache, **more):
    kept = {"PATH": os.environ["PATH"], "HOME": str(cache), "HF_HUB_CACHE": str(cache / "hub")}
    return kept | {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN} | more


def download(hub, cache, model=MODEL, **more):
    return subprocess.run(
        [*PULL, model], env=environment(hub, cache, **more), capture_output=True, text=True, timeout=60
    )


def repository(cache):
    return cache / "hub" / "models--org--tiny"


def check_complete(hub, cache, result):
    assert result.returncode == 0, result.stderr
    snapshot = repository(cache) / "snapshots" / COMMIT
    assert result.stdout.strip() == str(snapshot)
    names = ["config.json", "tokenizer.json", "model.safetensors"]
    assert sorted(entry.name for entry in snapshot.iterdir()) == sorted(names)
    for name in names:
        assert (snapshot / name).read_bytes() == hub.files[name]
        assert os.readlink(snapshot / name).startswith("../../blobs/")
    assert (repository(cache) / "refs/main").read_text() == COMMIT
    assert not list((repository(cache) / "blobs").glob("*.incomplete"))


def check_failed(result, code, *parts):
    assert result.returncode == code, result.stderr
    for part in parts:
        assert part in result.stderr
    assert TOKEN not in result.stderr


def check_not_published(cache):
    assert not (repository(cache) / "refs/main").exists()
    assert not (repository(cache) / "snapshots" / COMMIT / "model.safetensors").exists()


def partial(cache, hub, name="model.safetensors"):
    return repository(cache) / "blobs" / (hashlib.sha256(hub.files[name]).hexdigest() + ".incomplete")


def test_a_download_is_a_huggingface_cache(hub, tmp_path):
    result = download(hub, tmp_path)
    check_complete(hub, tmp_path, result)
    assert "model.safetensors: 100.2 kB" in result.stderr and "\x1b" not in result.stderr
    assert not hub.requested("README.md") and not hub.requested("pytorch_model.bin")

    huggingface_hub = pytest.importorskip("huggingface_hub")
    folder = huggingface_hub.snapshot_download(
        MODEL, cache_dir=tmp_path / "hub", local_files_only=True
    )
    assert folder == result.stdout.strip()
    blob = (Path(folder) / "model.safetensors").resolve()
    assert blob.name == hashlib.sha256(hub.files["model.safetensors"]).hexdigest()
    assert (Path(folder) / "config.json").resolve().name == git_hash(hub.files["config.json"])


def test_what_is_there_is_not_fetched_again(hub, tmp_path):
    download(hub, tmp_path)
    hub.requests.clear()
    check_complete(hub, tmp_path, download(hub, tmp_path))
    assert [path for path, _ in hub.requests] == ["/api/models/org/tiny/revision/main"]


def test_a_revision_is_encoded_and_a_commit_gets_no_ref(hub, tmp_path):
    assert download(hub, tmp_path, "org/tiny@refs/pr/1").returncode == 0
    assert "/api/models/org/tiny/revision/refs%2Fpr%2F1" in [path for path, _ in hub.requests]
    assert (repository(tmp_path) / "refs/refs/pr/1").read_text() == COMMIT
    assert download(hub, tmp_path, f"org/tiny@{COMMIT}").returncode == 0
    assert not (repository(tmp_path) / "refs" / COMMIT).exists()


def test_shards_are_chosen_by_the_index(hub, tmp_path):
    del hub.files["model.safetensors"]
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = {"weight_map": dict(zip("ab", shards))}
    hub.files["model.safetensors.index.json"] = json.dumps(index).encode()
    for key, shard in index["weight_map"].items():
        hub.files[shard] = safetensors([key])
    hub.files["consolidated.safetensors"] = safetensors(["other"])
    result = download(hub, tmp_path)
    assert result.returncode == 0, result.stderr
    assert hub.requested(shards[0]) and hub.requested(shards[1])
    assert not hub.requested("consolidated.safetensors")

    hub.files.pop(shards[1])
    check_failed(download(hub, tmp_path), BAD_INPUT, "index.json", shards[1])


@pytest.mark.parametrize("name", ["../evil.safetensors", "/etc/evil.safetensors"])
def test_a_hostile_index(hub, tmp_path, name):
    hub.files["model.safetensors.index.json"] = json.dumps({"weight_map": {"a": name}}).encode()
    check_failed(download(hub, tmp_path), BAD_INPUT, "index.json", "evil")


def test_resume(hub, tmp_path):
    content = hub.files["model.safetensors"]
    (repository(tmp_path) / "blobs").mkdir(parents=True)
    partial(tmp_path, hub).write_bytes(content[:60_000])
    check_complete(hub, tmp_path, download(hub, tmp_path))
    assert [headers["Range"] for headers in hub.requested("model.safetensors")] == ["bytes=60000-"]


def test_resume_from_a_server_without_ranges(hub, tmp_path):
    hub.ranges = False
    (repository(tmp_path) / "blobs").mkdir(parents=True)
    partial(tmp_path, hub).write_bytes(b"x" * 60_000)
    check_complete(hub, tmp_path, download(hub, tmp_path))


def test_a_wrong_partial_file_is_started_over(hub, tmp_path):
    size = len(hub.files["model.safetensors"])
    for left in (60_000, size, size + 5):
        cache = tmp_path / str(left)
        (repository(cache) / "blobs").mkdir(parents=True)
        partial(cache, hub).write_bytes(b"x" * left)
        check_complete(hub, cache, download(hub, cache))


def test_another_range_than_asked_for(hub, tmp_path):
    (repository(tmp_path) / "blobs").mkdir(parents=True)
    partial(tmp_path, hub).write_bytes(hub.files["model.safetensors"][:60_000])
    hub.faults["model.safetensors"] = [("content-range", "bytes 0-9/10")]
    check_failed(download(hub, tmp_path), BAD_INPUT, "model.safetensors", "another part")


def test_a_truncated_body_is_continued(hub, tmp_path):
    hub.faults["model.safetensors"] = [("cut", 30_000), ("cut", 20_000)]
    result = download(hub, tmp_path)
    check_complete(hub, tmp_path, result)
    ranges = [headers.get("Range") for headers in hub.requested("model.safetensors")]
    assert len(ranges) == 3 and ranges[0] is None and all(r.startswith("bytes=") for r in ranges[1:])
    assert "trying again" in result.stderr


def test_a_wrong_hash(hub, tmp_path):
    size = len(hub.files["model.safetensors"])
    hub.faults["model.safetensors"] = [("body", b"x" * size)] * 5
    check_failed(download(hub, tmp_path), BAD_INPUT, "model.safetensors", "wrong hash")
    check_not_published(tmp_path)
    hub.faults.clear()
    check_complete(hub, tmp_path, download(hub, tmp_path))


def test_a_wrong_hash_of_a_small_file(hub, tmp_path):
    hub.faults["config.json"] = [("body", b"x" * len(hub.files["config.json"]))]
    check_failed(download(hub, tmp_path), BAD_INPUT, "config.json", "wrong hash")


def test_more_bytes_than_listed(hub, tmp_path):
    hub.faults["config.json"] = [("body", b"x" * 10_000)]
    check_failed(download(hub, tmp_path), BAD_INPUT, "config.json", "sent more")


def test_the_token_stays_with_the_endpoint(hub, other_host, tmp_path):
    other_host.files = hub.files
    elsewhere = f"{other_host.url}/cdn/model.safetensors"
    hub.faults["model.safetensors"] = [("redirect", elsewhere)]
    # 127.0.0.1 -> localhost, same port: another host by name
    same_port = f"http://localhost:{hub.server_port}/cdn/tokenizer.json"
    hub.faults["tokenizer.json"] = [("redirect", same_port)]
    hub.faults["config.json"] = [("redirect", "/org/tiny/renamed/config.json")]
    check_complete(hub, tmp_path, download(hub, tmp_path))

    (headers,) = other_host.requested("model.safetensors")
    assert "Authorization" not in headers
    first, second = hub.requested("tokenizer.json")
    assert first["Authorization"] == f"Bearer {TOKEN}" and "Authorization" not in second
    for headers in hub.requested("config.json") + hub.requested("main"):
        assert headers["Authorization"] == f"Bearer {TOKEN}"


def test_the_token_comes_from_the_file_too(hub, tmp_path):
    (tmp_path / "token").write_text("from-file\n")
    download(hub, tmp_path, HF_TOKEN="", HF_HOME=str(tmp_path))
    assert hub.requested("main")[0]["Authorization"] == "Bearer from-file"


@pytest.mark.parametrize(
    "target", ["http://192.0.2.1/x", "file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/"]
)
def test_forbidden_redirects(hub, tmp_path, target):
    hub.faults["model.safetensors"] = [("redirect", target)]
    check_failed(download(hub, tmp_path), JOB_FAILED, "model.safetensors", "refused to follow", target)


def test_a_redirect_loop(hub, tmp_path):
    hub.faults["model.safetensors"] = [("redirect", "model.safetensors")] * 100
    check_failed(download(hub, tmp_path), JOB_FAILED, "more than 8 redirects")


@pytest.mark.parametrize("endpoint", ["http://192.0.2.1", "http://127.0.0.1.example.com", "ftp://x", "nonsense"])
def test_forbidden_endpoints(hub, tmp_path, endpoint):
    result = download(hub, tmp_path, HF_ENDPOINT=endpoint)
    check_failed(result, WRONG_USAGE, "HF_ENDPOINT", endpoint)


@pytest.mark.parametrize("status", [401, 403])
def test_gated(hub, tmp_path, status):
    hub.faults["model.safetensors"] = [("status", status)]
    result = download(hub, tmp_path)
    check_failed(result, JOB_FAILED, "gated", "licence", "HF_TOKEN", f"{hub.url}/{MODEL}")
    assert len(hub.requested("model.safetensors")) == 1
    assert "error page" not in "".join(
        path.read_text(errors="replace") for path in (repository(tmp_path) / "blobs").iterdir()
    )


def test_no_such_revision(hub, tmp_path):
    hub.faults["v9"] = [("status", 404)]
    check_failed(download(hub, tmp_path, "org/tiny@v9"), JOB_FAILED, "404", '"v9"')
    assert not repository(tmp_path).exists()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_passing_trouble_is_retried(hub, tmp_path, status):
    hub.faults["main"] = [("status", status)]
    hub.faults["model.safetensors"] = [("status", status)] * 2
    check_complete(hub, tmp_path, download(hub, tmp_path))
    assert len(hub.requested("model.safetensors")) == 3


def test_retry_after_is_heeded(hub, tmp_path):
    hub.faults["main"] = [("status", 429, ("Retry-After", "1"))]
    begin = time.monotonic()
    result = download(hub, tmp_path)
    check_complete(hub, tmp_path, result)
    assert time.monotonic() - begin >= 1 and "trying again in 1.0 s" in result.stderr


def test_lasting_trouble_ends(hub, tmp_path):
    hub.faults["main"] = [("status", 500)] * 100
    check_failed(download(hub, tmp_path), JOB_FAILED, "HTTP 500")
    assert len(hub.requested("main")) == 6


def test_nobody_listens(hub, tmp_path):
    hub.shutdown()
    hub.server_close()
    check_failed(download(hub, tmp_path), JOB_FAILED, "127.0.0.1")


def test_offline_means_no_request(hub, tmp_path):
    check_failed(download(hub, tmp_path, HF_HUB_OFFLINE="1"), JOB_FAILED, "HF_HUB_OFFLINE")
    assert not hub.requests


@pytest.mark.parametrize(
    "name", ["../../../evil", "/evil", "a/../../evil", "evil\x1b[2J", "", "..", "a\\b", "a\0b"]
)
def test_hostile_file_names(hub, tmp_path, name):
    hub.listing = hub.siblings() + [{"rfilename": name, "size": 1, "blobId": "0" * 40}]
    result = download(hub, tmp_path)
    check_failed(result, BAD_INPUT, "file name")
    assert "\x1b" not in result.stderr
    assert len(hub.requests) == 1


@pytest.mark.parametrize(
    "change",
    [{"size": 10**30}, {"size": "5"}, {"size": None}, {"blobId": "../x", "lfs": None}, {"lfs": {}}],
)
def test_hostile_listings(hub, tmp_path, change):
    hub.listing = [entry | change for entry in hub.siblings()]
    check_failed(download(hub, tmp_path), BAD_INPUT, "config.json")
    assert len(hub.requests) == 1


def test_a_disk_too_small(hub, tmp_path):
    hub.listing = [e | {"size": 10**13} if "lfs" in e else e for e in hub.siblings()]
    check_failed(download(hub, tmp_path), JOB_FAILED, "not enough disk space")
    assert not hub.requested("model.safetensors")


def test_pickles_only(hub, tmp_path):
    del hub.files["model.safetensors"]
    check_failed(download(hub, tmp_path), BAD_INPUT, "pickle", "convert")
    del hub.files["config.json"]
    check_failed(download(hub, tmp_path), BAD_INPUT, "config.json")


def test_an_interrupt_leaves_what_can_be_resumed(hub, tmp_path):
    hub.faults["model.safetensors"] = [("slow", 40_000)]
    # A shell starts background jobs with interrupts ignored, and children inherit that.
    process = subprocess.Popen(
        [*PULL, MODEL],
        env=environment(hub, tmp_path),
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if partial(tmp_path, hub).exists() and partial(tmp_path, hub).stat().st_size == 40_000:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == -signal.SIGINT
    process.stderr.close()
    check_not_published(tmp_path)
    check_complete(hub, tmp_path, download(hub, tmp_path))
    assert hub.requested("model.safetensors")[-1]["Range"] == "bytes=40000-"


@pytest.mark.parametrize("columns, end", [(100, "kB  model.safetensors  0 s"), (60, "kB of 100....")])
def test_a_terminal_gets_a_bar(columns, end, hub, tmp_path):
    """Which fits into a row: a longer one could not be drawn again."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*PULL, MODEL], env=environment(hub, tmp_path), stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    assert process.wait(timeout=20) == 0
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    rows = re.split(r"\r\n|\r\x1b\[K", shown)
    assert all(len(row) < columns for row in rows) and any("100 %  100.2" in row and row.endswith(end) for row in rows)


def test_a_lock_of_huggingface_hub_is_waited_for(hub, tmp_path):
    name = hashlib.sha256(hub.files["model.safetensors"]).hexdigest() + ".lock"
    folder = tmp_path / "hub/.locks/models--org--tiny"
    folder.mkdir(parents=True)
    with open(folder / name, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [*PULL, MODEL], env=environment(hub, tmp_path), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for line in process.stderr:
            if "model.safetensors: another process is fetching it" in line:
                break
        assert process.poll() is None and not hub.requested("model.safetensors")
    out, err = process.communicate(timeout=20)
    check_complete(hub, tmp_path, subprocess.CompletedProcess([], process.returncode, out, err))


def test_two_at_once(hub, tmp_path):
    hub.files["model.safetensors"] = safetensors([f"t{i}" for i in range(100)])
    processes = [
        subprocess.Popen([*PULL, MODEL], env=environment(hub, tmp_path), text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    for process in processes:
        out, err = process.communicate(timeout=60)
        done = subprocess.CompletedProcess([], process.returncode, out, err)
        check_complete(hub, tmp_path, done)
    assert len(hub.requested("model.safetensors")) == 1


def test_the_program_downloads_and_runs(hub, tmp_path):
    """From an id to tokens: fetch once, then work from the cache without the network."""
    tiny_models.write_case("llama_sharded", tmp_path / "model")
    hub.files = {f.name: f.read_bytes() for f in (tmp_path / "model").iterdir()}
    cache = tmp_path / "cache"

    def run(*options, **more):
        command = [PROGRAM, "run", MODEL, "--reference", "--ids", "1,2,3", "-n", "4", "--json"]
        return subprocess.run(
            command + list(options),
            env=environment(hub, cache, **more),
            capture_output=True,
            text=True,
            timeout=60,
        )

    missing = run()
    assert missing.returncode == BAD_INPUT and "--download" in missing.stderr
    assert hub.requests == []
    fetched = run("--download")
    assert fetched.returncode == 0, fetched.stderr
    assert len(json.loads(fetched.stdout)["generated"]) == 4
    offline = run(HF_HUB_OFFLINE="1")
    assert offline.stdout == fetched.stdout


def test_pull_says_what_it_fetched(hub, tmp_path):
    def pull(*arguments, expect=0):
        result = subprocess.run(
            [*PULL, *arguments], env=environment(hub, tmp_path), capture_output=True, text=True
        )
        assert result.returncode == expect, result.stderr
        return result

    result = pull(f"{MODEL}@main", "--json", "--quiet")
    assert result.stderr == ""
    folder = str(repository(tmp_path) / "snapshots" / COMMIT)
    assert json.loads(result.stdout) == {
        "id": MODEL, "revision": "main", "commit": COMMIT, "folder": folder,
    }
    assert "../model" in pull("../model", expect=WRONG_USAGE).stderr
