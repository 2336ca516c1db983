"""deploy/kubernetes: what the manifests name exists in the code and in each other.

The fields of the manifests are checked against Kubernetes' schemas by `kubernetes-validate --strict` (docs/deployment.md);
these tests check what no schema knows: keys, ports, selectors, claims, probes and addresses.
"""

import re
import shutil
import subprocess
from itertools import chain

import pytest
import yaml

from pocketmq.cli.up import BROKER_PORT, METRICS_PORT
from pocketmq.console.config import CONSOLE_PORT
from pocketmq.proxy.config import GRPC_PORT
from pocketmq.runtime.lifecycle import STOP_MAX_S
from tests.deploy.declared import BROKER_KEYS, NAMESRV_KEYS, NAMESRV_PORT, keys_of
from tests.deploy.dockerfile import DEPLOY

FOLDER = DEPLOY / "kubernetes"
COMPONENT = "app.kubernetes.io/component"
FILES = ("base/namesrv.yaml", "base/broker.yaml", "slaves/broker-slave.yaml", "proxy/proxy.yaml", "console/console.yaml")
PORTS = {
    "namesrv": {NAMESRV_PORT, METRICS_PORT},
    "broker": {BROKER_PORT, BROKER_PORT - 2, BROKER_PORT + 1, METRICS_PORT},
    "proxy": {GRPC_PORT},
    "console": {CONSOLE_PORT},
}


def documents(*files):
    return list(chain.from_iterable(yaml.safe_load_all((FOLDER / file).read_text()) for file in files or FILES))


def of_kind(*kinds):
    return [document for document in documents() if document["kind"] in kinds]


def workloads():
    return of_kind("StatefulSet", "Deployment")


def pod(workload):
    return workload["spec"]["template"]["spec"]


def component(workload):
    return workload["spec"]["template"]["metadata"]["labels"][COMPONENT]


def container(workload):
    (one,) = pod(workload)["containers"]
    return one


def named(workload):
    return workload["metadata"]["name"]


each_workload = pytest.mark.parametrize("workload", workloads(), ids=named)


def test_each_workload_has_a_service_and_with_several_pods_a_disruption_budget():
    components = {component(workload) for workload in workloads()}
    assert components == {"namesrv", "broker", "broker-slave", "proxy", "console"}
    assert {one["spec"]["selector"][COMPONENT] for one in of_kind("Service")} == components
    budgets = [one["spec"] for one in of_kind("PodDisruptionBudget")]
    assert {one["selector"]["matchLabels"][COMPONENT] for one in budgets} == {
        component(workload) for workload in workloads() if workload["spec"]["replicas"] > 1
    }
    assert all(one["maxUnavailable"] == 1 for one in budgets)


@each_workload
def test_a_workload_selects_its_own_pods(workload):
    assert workload["spec"]["selector"]["matchLabels"] == workload["spec"]["template"]["metadata"]["labels"]
    if workload["kind"] == "StatefulSet":
        (service,) = [one for one in of_kind("Service") if one["metadata"]["name"] == workload["spec"]["serviceName"]]
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["selector"] == workload["spec"]["selector"]["matchLabels"]


@each_workload
def test_ports_are_those_of_the_servers(workload):
    expected = PORTS[component(workload).removesuffix("-slave")]
    assert {port["containerPort"] for port in container(workload)["ports"]} == expected
    (service,) = [one for one in of_kind("Service") if one["spec"]["selector"][COMPONENT] == component(workload)]
    assert {port["port"] for port in service["spec"]["ports"]} == expected


@each_workload
def test_probes_ask_for_health_at_a_port_of_the_container(workload):
    one = container(workload)
    ports = {port["name"] for port in one["ports"]}
    pages = ("/health", "/health") if component(workload) == "console" else ("/health/live", "/health/ready")
    for kind, page in zip(("livenessProbe", "readinessProbe"), pages, strict=True):
        (asked,) = [value for key, value in one[kind].items() if key in ("httpGet", "tcpSocket")]
        assert asked["port"] in ports and asked.get("path", page) == page


@each_workload
def test_a_pod_runs_without_rights_from_a_read_only_root(workload):
    one = container(workload)
    assert pod(workload)["securityContext"]["runAsUser"] == 10001 and pod(workload)["securityContext"]["runAsNonRoot"]
    assert one["securityContext"]["readOnlyRootFilesystem"] and one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"/tmp", "/var/lib/pocketmq"} <= {mount["mountPath"] for mount in one["volumeMounts"]}


@each_workload
def test_mounted_volumes_are_declared(workload):
    declared = {volume["name"] for volume in pod(workload)["volumes"]}
    declared |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())}
    assert {mount["name"] for mount in container(workload)["volumeMounts"]} == declared


@each_workload
def test_a_pod_has_time_to_stop(workload):
    assert pod(workload)["terminationGracePeriodSeconds"] > STOP_MAX_S


@each_workload
def test_arguments_set_keys_and_name_variables_that_exist(workload):
    program, *words = container(workload)["args"]
    keys = {word.partition("=")[0] for word in words if "=" in word}
    assert keys <= (BROKER_KEYS if program == "mqbroker" else set())
    variables = {variable["name"] for variable in container(workload).get("env", ())}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(words))) <= variables


def test_brokers_advertise_the_address_of_their_pod():
    brokers = [workload for workload in workloads() if component(workload).startswith("broker")]
    for workload in brokers:
        assert {"brokerName=broker-$(POD_INDEX)", "brokerIP1=$(POD_IP)"} <= set(container(workload)["args"])
    assert len(brokers) == 2


def test_all_know_every_name_server():
    (namesrv,) = [workload for workload in workloads() if component(workload) == "namesrv"]
    service = namesrv["spec"]["serviceName"]
    pods = [f"{named(namesrv)}-{index}.{service}:{NAMESRV_PORT}" for index in range(namesrv["spec"]["replicas"])]
    text = "".join((FOLDER / file).read_text() for file in FILES)
    assert re.findall(rf"{named(namesrv)}-0\.[^\s,\]]+:[^\s,\]]+", text) == [";".join(pods)] * 4


def test_slaves_are_as_many_as_masters_and_masters_wait_for_them():
    replicas = {component(workload): workload["spec"]["replicas"] for workload in workloads()}
    assert replicas["broker"] == replicas["broker-slave"]
    assert "value: brokerRole=SYNC_MASTER" in (FOLDER / "slaves/kustomization.yaml").read_text()


def test_settings_exist():
    assert keys_of((FOLDER / "base/broker.conf").read_text()) <= BROKER_KEYS
    assert keys_of((FOLDER / "base/namesrv.conf").read_text()) <= NAMESRV_KEYS


def test_the_tag_of_the_image_is_the_version():
    from pocketmq import __version__

    (image,) = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["images"]
    assert image["newTag"] == __version__


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.parametrize("has_all", [False, True], ids=["as it is", "with slaves, proxy and console"])
def test_kustomize_renders_the_manifests(has_all, tmp_path):
    shutil.copytree(FOLDER, tmp_path / "k")
    if has_all:
        path = tmp_path / "k/kustomization.yaml"
        path.write_text(re.sub(r"^  # - ", "  - ", path.read_text(), flags=re.MULTILINE))
    done = subprocess.run(["kubectl", "kustomize", tmp_path / "k"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    counts = {kind: sum(one["kind"] == kind for one in rendered) for kind in ("StatefulSet", "Deployment", "ConfigMap")}
    assert counts == {"StatefulSet": 2 + has_all, "Deployment": 2 * has_all, "ConfigMap": 1}
    (config,) = [one for one in rendered if one["kind"] == "ConfigMap"]
    assert {one["metadata"].get("namespace") for one in rendered} <= {"pocketmq", None}
    for one in rendered:
        if one["kind"] == "StatefulSet":
            volumes = [volume["configMap"]["name"] for volume in pod(one)["volumes"] if "configMap" in volume]
            assert volumes == [config["metadata"]["name"]]
    masters = next(one for one in rendered if one["metadata"]["name"] == "pocketmq-broker" and one["kind"] == "StatefulSet")
    assert ("brokerRole=SYNC_MASTER" in container(masters)["args"]) is has_all
