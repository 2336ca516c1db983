"""deploy/docker and deploy/compose.yml: programs, ports, keys and files in them exist."""

import os
import re
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import yaml

from pocketmq.cli.up import BROKER_PORT, METRICS_PORT
from pocketmq.console.config import CONSOLE_PORT
from pocketmq.proxy.config import GRPC_PORT
from pocketmq.runtime.lifecycle import STOP_MAX_S
from tests.deploy.declared import BROKER_KEYS, NAMESRV_KEYS, NAMESRV_PORT, PROXY_KEYS, keys_of
from tests.deploy.dockerfile import DEPLOY, DOCKERFILE, Instruction, copied, environment, stages
from tests.deploy.image_root import copy

ROOT = DEPLOY.parent
KEYS = {"mqnamesrv": NAMESRV_KEYS, "mqbroker": BROKER_KEYS, "mqproxy": PROXY_KEYS}
ENTRYPOINT = DEPLOY / "docker" / "entrypoint"
HEALTHCHECK = DEPLOY / "docker" / "healthcheck"


def image():
    return stages(DOCKERFILE.read_text())


def compose():
    return yaml.safe_load((DEPLOY / "compose.yml").read_text())


def servers():
    """Return the services that run our image."""
    return {name: service for name, service in compose()["services"].items() if service["image"] == "pocketmq"}


def the_one(stage, name):
    (found,) = (step for step in stage if step.name == name)
    return found


# --- the image ----------------------------------------------------------------------------------------------------------


def test_what_the_image_copies_exists_and_is_not_ignored():
    ignored = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    paths = [path for stage in image() for path in copied(stage)]
    assert paths
    for path in paths:
        assert (ROOT / path).exists() and f"!{path}" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == set(paths)


def test_the_image_has_what_the_wheel_is_built_of():
    project = (ROOT / "pyproject.toml").read_text()
    first = set(copied(image()[0]))
    (packages,) = re.findall(r"^include = \[(.*)\]", project, re.MULTILINE)
    assert {name.split(".")[0] for name in re.findall(r'"(.+?)"', packages)} <= first
    assert set(re.findall(r'^readme = "(.*)"', project, re.MULTILINE)) <= first


def test_the_image_installs_extras_that_exist():
    extras = next(step.rest for step in image()[-1] if step.name == "ARG" and step.rest.startswith("EXTRAS="))
    project = (ROOT / "pyproject.toml").read_text()
    assert [extra for extra in extras.partition("=")[2].split(",") if f"\n{extra} = [\n" not in project] == []


def test_the_image_exposes_the_ports_of_the_servers():
    ports = {NAMESRV_PORT, BROKER_PORT, BROKER_PORT - 2, BROKER_PORT + 1, GRPC_PORT, METRICS_PORT, CONSOLE_PORT}
    assert {int(word) for word in the_one(image()[-1], "EXPOSE").words} == ports


def test_the_image_runs_as_a_user_without_rights_whose_home_is_the_volume():
    final = image()[-1]
    home = environment(the_one(final, "ENV").rest)["HOME"]
    user = the_one(final, "USER").rest
    assert user == "10001:10001"
    assert any(f"--uid {user.partition(':')[0]} " in step.rest and home in step.rest for step in final if step.name == "RUN")
    assert the_one(final, "VOLUME").rest == the_one(final, "WORKDIR").rest == home


def test_only_the_wheel_comes_from_the_first_stage():
    final = image()[-1]
    assert [step.flags["mount"] for step in final if step.flags.get("mount")] == [
        "type=bind,from=build,source=/dist,target=/dist"
    ]
    assert not any(step.flags.get("from") for step in final)


def test_the_image_needs_no_server_of_packages_but_debian_and_pypi():
    assert not re.findall(r"https?://", "".join(step.rest for stage in image() for step in stage))


def test_the_command_of_the_image_is_installed():
    final = image()[-1]
    assert the_one(final, "CMD").words[0] in programs()
    assert the_one(final, "ENTRYPOINT").words == [ENTRYPOINT.name]
    assert the_one(final, "HEALTHCHECK").rest.split("CMD ")[1] == f'["{HEALTHCHECK.name}", "live"]'


def programs():
    return set(re.findall(r"^(\w+) = \"pocketmq\.", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))


def test_steps_without_an_engine_copy_into_the_root_of_their_stage(tmp_path):
    copy(Instruction("COPY", {"chmod": "755"}, "deploy/docker/entrypoint /usr/local/bin/"), tmp_path, "/src")
    copy(Instruction("COPY", {}, "pocketmq/lane pocketmq/lane"), tmp_path, "/src")
    assert (tmp_path / "usr/local/bin/entrypoint").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "src/pocketmq/lane/crate/Cargo.toml").is_file()
    assert not list(tmp_path.rglob("*.so"))


# --- the entry point ----------------------------------------------------------------------------------------------------


@pytest.fixture
def enter(tmp_path):
    """Return a function that runs the entry point before programs that print their arguments and their config file."""
    (tmp_path / "bin").mkdir()
    for name in (*KEYS, "pocketmq"):
        path = tmp_path / "bin" / name
        path.write_text('#!/bin/sh\necho "$0" "$@"; case $1 in *c) cat "$2";; esac\n')
        path.chmod(0o755)

    def run(*words, **variables):
        paths = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(
            [ENTRYPOINT, *words], env={"PATH": paths, "HOME": str(tmp_path), **variables}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        command, *lines = done.stdout.splitlines()
        return command.removeprefix(f"{tmp_path}/bin/").replace(str(tmp_path), "~"), lines

    return run


def test_words_with_an_equals_sign_become_the_config_file(enter):
    command, lines = enter("mqbroker", "brokerName=a", "-n", "h:9876;i:9876", "brokerIP1=10.0.0.1", "--strict")
    assert command == "mqbroker -c ~/mqbroker.conf -n h:9876;i:9876 --strict"
    assert lines == [
        "bindAddress=0.0.0.0",
        "metricsHost=0.0.0.0",
        f"metricsPort={METRICS_PORT}",
        "brokerName=a",
        "brokerIP1=10.0.0.1",
    ]


def test_a_file_comes_before_the_words_and_after_the_defaults(enter, tmp_path):
    (tmp_path / "given.conf").write_text("brokerName=x\nmetricsPort=1")
    _, lines = enter("mqbroker", "brokerName=a", POCKETMQ_CONFIG=str(tmp_path / "given.conf"))
    settings = dict(line.split("=") for line in lines if line)
    assert settings == {"bindAddress": "0.0.0.0", "metricsHost": "0.0.0.0", "metricsPort": "1", "brokerName": "a"}


def test_values_are_taken_as_they_are(enter, tmp_path):
    value = 'initAuthenticationUser={"username":"root","password":"$(id) * `x`"}'
    assert value in enter("mqbroker", value)[1]
    assert (tmp_path / "mqbroker.conf").stat().st_mode & 0o777 == 0o600


def test_the_config_file_is_made_anew_at_each_start(enter):
    enter("mqnamesrv", "listenPort=1")
    assert "listenPort=1" not in enter("mqnamesrv")[1]


def test_a_proxy_has_its_own_option_and_other_commands_stay_as_they_are(enter):
    assert enter("mqproxy", "-n", "h:9876") == ("mqproxy -pc ~/mqproxy.conf -n h:9876", ["bindAddress=0.0.0.0"])
    assert enter("pocketmq", "up", "--set", "a=b") == ("pocketmq up --set a=b", [])


@pytest.mark.parametrize("program", KEYS)
def test_the_entry_point_sets_keys_that_exist(enter, program):
    assert keys_of("\n".join(enter(program)[1])) <= KEYS[program]


# --- the health check ---------------------------------------------------------------------------------------------------


def healthcheck(*words):
    done = subprocess.run([HEALTHCHECK, *words], capture_output=True, text=True)
    return done.returncode, done.stdout.strip()


@pytest.mark.parametrize(
    ("word", "page", "status"),
    [("live", "/health/live", 200), ("ready", "/health/ready", 503), ("console", "/health", 200)],
)
def test_the_health_check_follows_the_page(word, page, status, tmp_path):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == page else 404)
            self.end_headers()
            self.wfile.write(b"reason")

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        code = re.sub(r"_PORT = \d+", f"_PORT = {server.server_port}", HEALTHCHECK.read_text())
        (tmp_path / "check").write_text(code)
        done = subprocess.run(["python3", tmp_path / "check", word], capture_output=True, text=True)
        thread.join()
    assert (done.returncode, done.stdout) == (status != 200, "reason\n")


def test_the_health_check_asks_the_port_of_the_servers():
    assert f"\nMETRICS_PORT = {METRICS_PORT}\nCONSOLE_PORT = {CONSOLE_PORT}\n" in HEALTHCHECK.read_text()


def test_the_health_check_of_a_port_sees_whether_something_listens():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert healthcheck(str(port)) == healthcheck(f"127.0.0.1:{port}") == (0, "")
    code, text = healthcheck(str(port))
    assert code == 1 and text.startswith(f"127.0.0.1:{port}: ")


# --- compose ------------------------------------------------------------------------------------------------------------


def test_compose_starts_a_name_server_two_brokers_a_proxy_and_a_console():
    commands = {name: service["command"][0] for name, service in servers().items()}
    assert sorted(commands.values()) == ["mqbroker", "mqbroker", "mqnamesrv", "mqproxy", "pocketmq"]
    assert set(commands.values()) <= programs()
    assert servers()["proxy"]["profiles"] == ["grpc"]


def test_compose_sets_keys_that_exist():
    for service in servers().values():
        program, *words = service["command"]
        keys = {word.partition("=")[0] for word in words if "=" in word}
        assert keys <= KEYS.get(program, set())
    assert keys_of((DEPLOY / "compose/broker.conf").read_text()) <= BROKER_KEYS


def test_the_console_changes_nothing_and_listens_on_the_loopback_address_alone():
    service = servers()["console"]
    assert service["command"][1] == "console" and not {"--write", "--host"} & set(service["command"])
    assert service["network_mode"] == "host" and "ports" not in service


def test_brokers_publish_the_port_that_they_advertise():
    for name, service in servers().items():
        if service["command"][0] == "mqbroker":
            settings = dict(word.split("=", 1) for word in service["command"][1:])
            port = int(settings["listenPort"])
            address = settings["brokerIP1"]
            assert f"{address}:{port}:{port}" in service["ports"] and settings["brokerName"] == name
            assert f"{address}:{port - 2}:{port - 2}" in service["ports"]


def test_all_ports_are_published_at_one_address():
    published = [port for service in compose()["services"].values() for port in service.get("ports", ())]
    assert {re.sub(r":\d+:\d+$", "", port) for port in published} == {"${POCKETMQ_ADDRESS:-127.0.0.1}"}
    assert len(published) == len(set(published))


def test_servers_have_a_volume_time_to_stop_and_no_rights():
    for name, service in servers().items():
        homes = [text for text in (*service.get("volumes", ()), *service["tmpfs"]) if "/var/lib/pocketmq" in text]
        assert len(homes) == 1, name
        assert int(service["stop_grace_period"].removesuffix("s")) > STOP_MAX_S
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        assert service["healthcheck"]["test"][:2] == ["CMD", HEALTHCHECK.name]


def test_mounted_files_exist_and_named_volumes_are_declared():
    document = compose()
    for service in document["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (DEPLOY / source).is_file() if source.startswith(".") else source in document["volumes"], volume


def test_prometheus_scrapes_each_server_under_the_name_that_the_board_expects():
    document = yaml.safe_load((DEPLOY / "compose/prometheus.yml").read_text())
    (job,) = document["scrape_configs"]
    (targets,) = (row["targets"] for row in job["static_configs"])
    assert job["job_name"] == "pocketmq"
    assert sorted(targets) == [f"{name}:{METRICS_PORT}" for name in sorted(servers()) if name not in ("proxy", "console")]
    mounted = {text.split(":")[1] for text in compose()["services"]["prometheus"]["volumes"]}
    assert set(document["rule_files"]) <= mounted


def test_grafana_finds_its_board_and_its_data():
    service = compose()["services"]["grafana"]
    mounted = {text.split(":")[1] for text in service["volumes"]}
    (provider,) = yaml.safe_load((DEPLOY / "compose/grafana-boards.yml").read_text())["providers"]
    assert f"{provider['options']['path']}/grafana-pocketmq.json" in mounted
    assert service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in mounted
    (source,) = yaml.safe_load((DEPLOY / "compose/grafana-datasource.yml").read_text())["datasources"]
    assert source["url"].startswith("http://prometheus:")
