"""What deploy/ has says what is so: of the repository, of the server, and of one another."""

import json
import re
import shutil
import subprocess

import pytest
import yaml
from compiled import ROOT, users_environment
from long_python import environment, long_python, only_long
from served import Server, compiled_once, free_port
from test_library import write_demo
from test_manual import options, whole_help
from test_serve_robust import until

FOLDER = ROOT / "deploy"
MANUAL = (ROOT / "docs/manual/deploy.md").read_text()
CONTAINERFILE = (FOLDER / "Containerfile").read_text()


def documents(name) -> dict:
    """By kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((FOLDER / name).read_text())}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return compiled_once(tmp_path_factory, "demo", write_demo, "--max-context", 256, "--chunk", 32)[1]


@pytest.fixture(scope="module")
def container():
    kinds = documents("kubernetes.yaml")
    (container,) = kinds["Deployment"]["spec"]["template"]["spec"]["containers"]
    return container


def test_the_image_is_built_from_what_there_is(tmp_path):
    copied = re.findall(r"^COPY (?!--from)(.+) (\S+)$", CONTAINERFILE, re.MULTILINE)
    assert len(copied) > 8
    for sources, target in copied:
        for source in sources.split():
            to = tmp_path / (source if target == "./" else target)
            shutil.copytree(ROOT / source, to) if (ROOT / source).is_dir() else shutil.copy(ROOT / source, to)
    configure = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja", "-DCMAKE_UNITY_BUILD=ON"]
    result = subprocess.run(configure, capture_output=True, text=True, env=users_environment())
    assert result.returncode == 0, result.stderr
    cuda, nvrtc = (re.search(rf"^ARG {name}=(\S+)$", CONTAINERFILE, re.MULTILINE)[1] for name in ("CUDA", "NVRTC"))
    wanted = re.search(r"nvidia-cuda-nvrtc>=(\d+)\.(\d+),", (ROOT / "python/requirements.txt").read_text())
    assert nvrtc.split("-") == cuda.split(".")[:2] == list(wanted.groups())


def test_the_deployment_fits_together(container):
    kinds = documents("kubernetes.yaml")
    pod = kinds["Deployment"]["spec"]["template"]
    labels, spec = pod["metadata"]["labels"], pod["spec"]
    pool = documents("inference-pool.yaml")
    for selector in (kinds["Deployment"]["spec"]["selector"]["matchLabels"], kinds["Service"]["spec"]["selector"],
                     pool["InferencePool"]["spec"]["selector"]["matchLabels"]):  # fmt: skip
        assert selector.items() <= labels.items()
    (port,) = container["ports"]
    number = port["containerPort"]
    assert f"--port={number}" in container["args"] and "--host=0.0.0.0" in container["args"]
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(number)
    assert pool["InferencePool"]["spec"]["targetPorts"] == [{"number": number}]
    assert kinds["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    (backend,) = pool["HTTPRoute"]["spec"]["rules"][0]["backendRefs"]
    assert (backend["kind"], backend["name"]) == ("InferencePool", pool["InferencePool"]["metadata"]["name"])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": port["name"]}
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
    assert claims == [kinds["PersistentVolumeClaim"]["metadata"]["name"]]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    user = spec["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}" in CONTAINERFILE and "XDG_CACHE_HOME=/cache" in CONTAINERFILE
    assert int(container["lifecycle"]["preStop"]["exec"]["command"][1]) < spec["terminationGracePeriodSeconds"]
    known = options(whole_help("serve"))
    given = {argument.partition("=")[0] for argument in container["args"] if argument.startswith("--")}
    assert container["args"][0] == "serve" and given <= known


def test_the_picker_reads_metrics_that_there_are(package, container):
    """With the arguments of the deployment, but for its model and its machine."""
    own = ("--download", "--device", "--host", "--port")
    arguments = [argument for argument in container["args"][2:] if not argument.startswith(own)]
    picker = documents("endpoint-picker.yaml")["EndpointPickerConfig"]
    plugins = {plugin["type"]: plugin.get("parameters", {}) for plugin in picker["plugins"]}
    (engine,) = plugins["core-metrics-extractor"]["engineConfigs"]
    labels = documents("kubernetes.yaml")["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert labels["llm-d.ai/engine-type"] == engine["name"]
    for profile in picker["schedulingProfiles"]:
        assert {each["pluginRef"] for each in profile["plugins"]} <= set(plugins)
    with Server(package, *arguments) as server:
        text = server.get("/metrics")
    specs = {name: spec for name, spec in engine.items() if name.endswith("Spec")}
    assert set(specs) == {"queuedRequestsSpec", "runningRequestsSpec", "kvUsageSpec", "loraSpec", "cacheInfoSpec"}
    for spec in filter(None, specs.values()):
        assert f"# TYPE {spec} gauge\n" in text and re.search(rf"^{spec} \S+$", text, re.MULTILINE), spec
        assert f"`{spec}`" in MANUAL


@only_long
def test_linters_find_nothing():
    folder = long_python().parent
    for command in (["hadolint", "Containerfile"], ["kubernetes-validate", "--strict", "kubernetes.yaml"]):
        result = subprocess.run([folder / command[0], *command[1:]], cwd=FOLDER, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr


@only_long
def test_sglangs_gateway(package, tmp_path):
    """The manual's command, before two servers: they answer, and what begins alike goes to the same one."""
    (shown,) = re.findall(r"^\$ python (-m sglang_router\.\S+ .*)$", MANUAL, re.MULTILINE)
    port, metrics = (free_port() for _ in range(2))
    with Server(package, "--alias", "demo") as first, Server(package, "--alias", "demo") as second:
        for given, server in (("8131", first), ("8132", second)):
            shown = shown.replace(f"http://127.0.0.1:{given}", server.url)
        command = [long_python(), *shown.split(), "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics)]
        with open(tmp_path / "log", "w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment(""))
        try:
            gateway = Server.__new__(Server)
            gateway.port = port

            def ready():
                assert process.poll() is None, (tmp_path / "log").read_text()
                try:
                    return gateway.request("GET", "/workers")[2].count('"is_healthy":true') == 2
                except OSError:
                    return False

            until(ready, 60)
            asked = {"model": "demo", "messages": [{"role": "user", "content": "What is a river?"}], "temperature": 0}
            assert json.loads(gateway.get("/v1/models"))["data"][0]["id"] == "demo"
            truth = first.post("/v1/chat/completions", **asked)["choices"][0]["message"]["content"]
            before = [server.metric("prompts_total") for server in (first, second)]
            for _ in range(3):
                assert gateway.post("/v1/chat/completions", **asked)["choices"][0]["message"]["content"] == truth
            events = gateway.stream("/v1/chat/completions", **asked)
            assert "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1]) == truth
            assert gateway.post("/v1/completions", model="demo", prompt="It was", max_tokens=3)["choices"][0]["text"]
            counts = [server.metric("prompts_total") - at for server, at in zip((first, second), before)]
            assert sum(counts) == 5 and max(counts) >= 4
        finally:
            process.terminate()
            process.wait(60)
