"""A Hub on loopback: the parts of its HTTP API that `huggingface_hub` uses to push and to download, kept in memory.

Repositories with commits, regular and LFS files, visibility and tokens; and faults on demand, to see what is left of a
push whose connection is cut.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import patch
from urllib.parse import parse_qs, unquote, urlsplit

import yaml
from datasets import config as datasets_config
from huggingface_hub import constants
from huggingface_hub.repocard_data import model_index_to_eval_results
from huggingface_hub.utils import validate_repo_id
from transformers.pipelines import SUPPORTED_TASKS
from transformers.utils import hub as transformers_hub

USER, TOKEN = "tester", "hf_" + "s3cret" * 6
LFS_SUFFIXES = (".safetensors", ".onnx", ".parquet", ".png", ".bin", ".data")


@dataclass
class Repository:
    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    @property
    def head(self) -> str:
        return self.commits[-1]


class HubServer(ThreadingHTTPServer):
    """Use as a context manager; `url` is the HF_ENDPOINT."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.objects: dict[str, bytes] = {}  # LFS
        self.requests: list[tuple[str, str]] = []
        self.cut_commits = 0  # so many commits are cut off half-way through their request
        self.stall_upload = threading.Event()  # LFS uploads stop half-way until their sender gives up
        self.stalled = threading.Event()
        self.lock = threading.Lock()

    def __enter__(self):
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self.shutdown()
        self.server_close()
        self._thread.join()

    def environment(self, cache) -> dict[str, str]:
        """What a process needs to talk to this Hub and to no other."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(cache),
            "HF_TOKEN": TOKEN,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def here(self, cache) -> ExitStack:
        """Within it this process talks to this Hub, whose address `huggingface_hub` has read when it was imported."""
        stack = ExitStack()
        stack.enter_context(patch.dict("os.environ", self.environment(cache)))
        template = self.url + "/{repo_id}/resolve/{revision}/{filename}"
        for name, value in {
            "ENDPOINT": self.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": template,
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_CACHE": str(cache),
        }.items():
            stack.enter_context(patch.object(constants, name, value))
        stack.enter_context(patch.object(transformers_hub, "_hf_api", None))
        stack.enter_context(patch.object(datasets_config, "HF_ENDPOINT", self.url))
        return stack

    def handle_error(self, request, client_address):
        """A client that went away is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, *args):
        pass

    # Answers ----------------------------------------------------------------------------------------------------------

    def _json(self, content, status=200, **headers):
        self._send(json.dumps(content).encode(), status, {"Content-Type": "application/json", **headers})

    def _send(self, body, status=200, headers=None, length=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status, code, message):
        self._json({"error": message}, status, **{"X-Error-Code": code, "X-Error-Message": message})

    def _body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    # Routes -----------------------------------------------------------------------------------------------------------

    def _route(self):
        url = urlsplit(self.path)
        path = unquote(url.path)
        self.query = parse_qs(url.query)
        self.server.requests.append((self.command, path))
        authorised = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if self.command == "PUT" and path.startswith("/objects/"):  # signed addresses, as of a storage service
            return self._receive_object(path.removeprefix("/objects/"))
        if path == "/api/validate-yaml":
            return self._validate_yaml(json.loads(self._body()))
        if path == "/api/whoami-v2":
            return self._json({"name": USER, "type": "user"}) if authorised else self._error(401, "", "Invalid token")
        if path == "/api/repos/create":
            return self._create(json.loads(self._body()), authorised)
        if match := re.fullmatch(r"/(datasets/|spaces/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            return self._lfs_batch(json.loads(self._body()))
        if match := re.fullmatch(r"/api/(model|dataset|space)s/([^/]+/[^/]+)(?:/([\w-]+)(?:/(.*))?)?", path):
            kind, name, verb, rest = match.groups()
            return self._with_repository(kind, name, authorised, lambda repo: self._api(repo, kind, name, verb, rest))
        if match := re.fullmatch(r"/(datasets/|spaces/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            kind = match[1].removesuffix("s/") if match[1] else "model"
            return self._with_repository(
                kind, match[2], authorised, lambda repo: self._resolve(repo, match[3], match[4])
            )
        self._body()
        return self._error(404, "NotFound", f"Nothing at {path}")

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _route  # noqa: N815

    def _with_repository(self, kind, name, authorised, act):
        repo = self.server.repositories.get((kind, name))
        if repo is None or (repo.private and not authorised) or (self.command == "POST" and not authorised):
            self._body()
            return self._error(401, "RepoNotFound", "Invalid username or password.")
        return act(repo)

    def _create(self, wanted, authorised):
        if not authorised:
            return self._error(401, "", "Invalid token")
        name = f"{wanted.get('organization') or USER}/{wanted['name']}"
        kind = wanted.get("type", "model")
        url = f"{self.server.url}/{'' if kind == 'model' else f'{kind}s/'}{name}"
        with self.server.lock:
            if (kind, name) in self.server.repositories:
                return self._json({"error": "You already created this repo", "url": url}, 409)
            repo = Repository(private=wanted.get("visibility") == "private")
            self.server.repositories[kind, name] = repo
            self._commit_files(repo, {".gitattributes": b""}, "initial commit")
        return self._json({"url": url, "name": name, "id": name})

    def _api(self, repo, kind, name, verb, rest):
        if verb in (None, "revision"):
            return self._json(
                {
                    "_id": "1",
                    "id": name,
                    f"{kind}Id": name,
                    "sha": repo.head,
                    "private": repo.private,
                    "tags": [],
                    "downloads": 0,
                    "likes": 0,
                    "lastModified": "2026-01-01T00:00:00.000Z",
                    "siblings": [{"rfilename": path} for path in sorted(repo.files)],
                }
            )
        if verb == "preupload":
            files = json.loads(self._body())["files"]
            return self._json({"files": [self._upload_mode(repo, file) for file in files], "commitOid": repo.head})
        if verb == "commit":
            return self._commit(repo, name if kind == "model" else f"{kind}s/{name}")
        if verb == "branch":
            self._body()
            return self._json({})
        if verb == "tree":
            below = rest.split("/", 1)[1] + "/" if "/" in rest else ""
            found = [self._entry(repo, path) for path in sorted(repo.files) if path.startswith(below)]
            if below and not found:
                return self._error(404, "EntryNotFound", f"{below} does not exist")
            if not self.query.get("recursive") or self.query["recursive"] == ["false"]:
                found = _one_level(found, below)
            return self._json(found)
        if verb == "paths-info":
            wanted = (
                parse_qs(self._body().decode()).get("paths", [])
                if "json" not in self.headers["Content-Type"]
                else (json.loads(self._body())["paths"])
            )
            return self._json([self._entry(repo, path) for path in wanted if path in repo.files])
        self._body()
        return self._error(404, "NotFound", f"{verb} is not served here")

    # Uploads ----------------------------------------------------------------------------------------------------------

    def _upload_mode(self, repo, file):
        known = repo.files.get(file["path"])
        large = file["path"].endswith(LFS_SUFFIXES)
        oid = None if known is None else (hashlib.sha256(known).hexdigest() if large else _git_oid(known))
        mode = "lfs" if large else "regular"
        return {"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid}

    def _lfs_batch(self, wanted):
        objects = []
        for item in wanted["objects"]:
            answer = {"oid": item["oid"], "size": item["size"]}
            if item["oid"] not in self.server.objects:
                answer["actions"] = {"upload": {"href": f"{self.server.url}/objects/{item['oid']}"}}
            objects.append(answer)
        return self._json({"transfer": "basic", "objects": objects})

    def _receive_object(self, oid):
        if self.server.stall_upload.is_set():
            self.rfile.read(int(self.headers["Content-Length"]) // 2)
            self.server.stalled.set()
            self.connection.settimeout(1800)
            self.rfile.read()  # until the sender goes away
            self.close_connection = True
            return None
        content = self._body()
        if hashlib.sha256(content).hexdigest() != oid:
            return self._error(400, "BadDigest", "content does not match its address")
        self.server.objects[oid] = content
        return self._send(b"", 200, {"ETag": f'"{oid}"'})

    def _commit(self, repo, name):
        if self.server.cut_commits:
            self.server.cut_commits -= 1
            self.rfile.read(int(self.headers["Content-Length"]) // 2)
            self.connection.close()
            self.close_connection = True
            return None
        lines = [json.loads(line) for line in self._body().splitlines()]
        changed = {}
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                changed[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.server.objects:
                    return self._error(400, "MissingObject", f"{value['path']} was never uploaded")
                changed[value["path"]] = self.server.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                repo.files.pop(value["path"], None)
        with self.server.lock:
            self._commit_files(repo, changed, lines[0]["value"]["summary"])
        return self._json({"commitUrl": f"{self.server.url}/{name}/commit/{repo.head}", "commitOid": repo.head})

    @staticmethod
    def _commit_files(repo, files, message):
        repo.files = {**repo.files, **files}
        state = "".join(f"{path}{_git_oid(content)}" for path, content in sorted(repo.files.items()))
        repo.commits.append(hashlib.sha1(f"{len(repo.commits)}{state}".encode()).hexdigest())
        repo.messages.append(message)

    # Downloads --------------------------------------------------------------------------------------------------------

    @staticmethod
    def _entry(repo, path):
        content = repo.files[path]
        entry = {"type": "file", "path": path, "size": len(content), "oid": _git_oid(content)}
        if path.endswith(LFS_SUFFIXES):
            sha = hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"oid": sha, "size": len(content), "pointerSize": 134}
        return entry

    def _resolve(self, repo, revision, path):
        if path not in repo.files:
            self._json(
                {"error": "Entry not found"}, 404, **{"X-Error-Code": "EntryNotFound", "X-Repo-Commit": repo.head}
            )
            return
        content = repo.files[path]
        large = path.endswith(LFS_SUFFIXES)
        etag = hashlib.sha256(content).hexdigest() if large else _git_oid(content)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": repo.head, "Accept-Ranges": "bytes"}
        if large:
            headers |= {"X-Linked-ETag": f'"{etag}"', "X-Linked-Size": str(len(content))}
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, end = int(wanted[1]), int(wanted[2] or len(content) - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
            self._send(content[start : end + 1], 206, headers)
            return
        self._send(content, 200, headers)

    # Metadata ---------------------------------------------------------------------------------------------------------

    def _validate_yaml(self, request):
        errors = card_errors(request["content"], request["repoType"])
        self._json({"errors": [{"message": message} for message in errors], "warnings": []}, 400 if errors else 200)


def _git_oid(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _one_level(entries, below):
    """Files directly under a folder, and the folders beside them."""
    level = {}
    for entry in entries:
        inner = entry["path"].removeprefix(below)
        if "/" in inner:
            folder = below + inner.split("/")[0]
            level[folder] = {"type": "directory", "path": folder, "oid": "0" * 40, "size": 0}
        else:
            level[entry["path"]] = entry
    return list(level.values())


KNOWN_LICENSES = {"apache-2.0", "mit", "cc-by-4.0", "cc-by-nc-4.0", "cc-by-sa-4.0", "bsd-3-clause", "other", "unknown"}


def card_errors(content, repo_type="model"):
    """What the Hub's schema of model and dataset cards objects to."""
    match = re.match(r"^---\n(.*?)\n---(\n|$)", content, re.DOTALL)
    if not match:
        return []
    try:
        data = yaml.safe_load(match[1])
    except yaml.YAMLError as error:
        return [f"not YAML: {error}"]
    if not isinstance(data, dict):
        return ["the metadata is no mapping"]
    errors = []

    def check(key, valid, what):
        values = data.get(key)
        for value in values if isinstance(values, list) else [] if values is None else [values]:
            if not (isinstance(value, str) and valid(value)):
                errors.append(f'"{key}" must be {what}, not {value!r}')

    check("license", KNOWN_LICENSES.__contains__, "a known licence")
    check("language", lambda value: re.fullmatch(r"[a-z]{2,3}", value), "a language code")
    check("tags", lambda value: 0 < len(value) <= 100, "words")
    if repo_type == "model":
        check("pipeline_tag", lambda value: value in {*SUPPORTED_TASKS, "sentence-similarity"}, "a task")
        check("library_name", lambda value: re.fullmatch(r"[a-z0-9-]+", value), "a library")
        check("metrics", lambda value: re.fullmatch(r"[\w./-]+", value), "the name of a metric")
        for key in ("datasets", "base_model"):
            check(key, _is_repo_id, "the id of a repository")
        try:
            model_index_to_eval_results(data.get("model-index", [{"name": "no results", "results": []}]))
        except (IndexError, KeyError, TypeError) as error:
            errors.append(f'"model-index" cannot be read: {error!r}')
    return errors


def _is_repo_id(value):
    try:
        validate_repo_id(value)
    except ValueError:
        return False
    return True
