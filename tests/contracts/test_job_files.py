"""The job files and cluster manifests of the repository are what a user can start from."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from sapiens_batch.cli import app
from sapiens_batch.driver.session import _QUIET
from sapiens_batch.driver.sizing import LABEL_CPUS, OBJECT_STORE_CHUNKS
from sapiens_batch.spec.job import JobSpec
from sapiens_batch.spec.loading import load_spec
from sapiens_batch.storage.filesystems import EXTRAS
from tests.conftest import REPO

JOBS = REPO / "jobs"
MANIFEST = JOBS / "cluster" / "rayjob.yaml"
VIEW_BYTES = 1024 * 768 * 3
GIB = 2**30

Values = dict[str, Any]


@pytest.fixture(scope="module")
def manifest() -> Values:
    found: Values = yaml.safe_load(MANIFEST.read_text())
    return found


@pytest.fixture(scope="module")
def cluster(manifest: Values) -> Values:
    found: Values = manifest["spec"]["rayClusterSpec"]
    return found


@pytest.fixture(scope="module")
def workers(cluster: Values) -> dict[str, Values]:
    return {group["groupName"]: group for group in cluster["workerGroupSpecs"]}


def job_of(manifest: Values) -> Path:
    """Where the job file that the manifest runs lies in the pod."""
    return Path(shlex.split(manifest["spec"]["entrypoint"])[2])


def load(manifest: Values) -> JobSpec:
    """The job file of the repository that the manifest runs."""
    return load_spec(JOBS / job_of(manifest).name)


def pod(group: Values) -> Values:
    found: Values = group["template"]["spec"]
    return found


def container(group: Values) -> Values:
    (found,) = pod(group)["containers"]
    return dict(found)


def needed_extras(job: JobSpec) -> set[str]:
    """Extras of the package that a job cannot do without."""
    addresses = [*job.source.uris, job.source.select or "", job.output.uri]
    schemes = {address.partition("://")[0] for address in addresses}
    found = {extra for scheme, extra in EXTRAS.items() if scheme in schemes}
    found |= {job.source.format} & {"lance", "delta", "iceberg"}
    return found | ({"detect"} if job.persons_section.origin == "detector" else set())


def named_extras(text: str) -> set[str]:
    """What the comments of a file say is to be installed."""
    return {
        extra for names in re.findall(r"sapiens-batch\[(.+?)\]", text) for extra in names.split(",")
    }


def gibibytes(quantity: str) -> float:
    match = re.fullmatch(r"(\d+)Gi", quantity)
    assert match is not None, f"{quantity} is not in Gi"
    return int(match[1])


@pytest.mark.parametrize("path", sorted(JOBS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_job_file_is_valid_and_named_after_its_job(path: Path) -> None:
    assert load_spec(path).name == path.stem


@pytest.mark.parametrize("path", sorted(JOBS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_job_file_names_the_extras_that_it_needs(path: Path) -> None:
    assert named_extras(path.read_text()) == needed_extras(load_spec(path))


def test_the_image_of_the_manifest_has_the_extras_that_its_job_needs(manifest: Values) -> None:
    assert named_extras(MANIFEST.read_text()) == needed_extras(load(manifest))


def test_the_manifest_is_a_ray_job(manifest: Values) -> None:
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayJob")
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", manifest["metadata"]["name"])
    assert manifest["spec"]["backoffLimit"] > 0, "nothing would resume after a lost head"
    assert manifest["spec"]["shutdownAfterJobFinishes"] is True


def test_its_command_is_one_of_ours_and_runs_a_job_of_the_repository(manifest: Values) -> None:
    program, name, path, *options = shlex.split(manifest["spec"]["entrypoint"])
    assert f'{program} = "sapiens_batch.cli:' in (REPO / "pyproject.toml").read_text()
    command: Any = get_command(app)
    run = command.commands[name]
    run.make_context(name, [path, *options], resilient_parsing=False)
    assert load(manifest).name in manifest["metadata"]["name"]


def test_the_job_file_is_mounted_where_the_command_looks(manifest: Values, cluster: Values) -> None:
    head = cluster["headGroupSpec"]
    mounts = {one["name"]: one["mountPath"] for one in container(head)["volumeMounts"]}
    (volume,) = (one for one in pod(head)["volumes"] if "configMap" in one)
    assert mounts[volume["name"]] == str(job_of(manifest).parent)
    made = f"kubectl create configmap {volume['configMap']['name']} --from-file jobs/"
    assert f"{made}{job_of(manifest).name}" in MANIFEST.read_text()


def test_every_pod_has_the_same_image_and_the_ray_that_was_tested(
    cluster: Values, workers: dict[str, Values]
) -> None:
    groups = [cluster["headGroupSpec"], *workers.values()]
    assert len({container(group)["image"] for group in groups}) == 1
    pins = (REPO / "constraints.txt").read_text().splitlines()
    assert f"ray=={cluster['rayVersion']}" in pins


def test_the_environment_is_that_of_a_local_run(manifest: Values) -> None:
    variables = yaml.safe_load(manifest["spec"]["runtimeEnvYAML"])["env_vars"]
    assert variables.items() <= _QUIET.items()
    assert all(isinstance(value, str) for value in variables.values()), "Ray refuses numbers"


def test_the_head_works_for_the_driver_alone(cluster: Values) -> None:
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert "nvidia.com/gpu" not in container(cluster["headGroupSpec"])["resources"]["limits"]


def test_gpu_workers_have_a_gpu_and_cpus_and_the_job_asks_for_it(
    manifest: Values, workers: dict[str, Values]
) -> None:
    limits = container(workers["gpu"])["resources"]["limits"]
    assert int(limits["nvidia.com/gpu"]) == 1
    assert int(limits["cpu"]) > LABEL_CPUS
    assert load(manifest).runtime.device == "cuda"


@pytest.mark.parametrize("name", ["gpu", "cpu"])
def test_the_object_store_of_a_worker_fits_into_its_shared_memory_and_that_into_its_limit(
    workers: dict[str, Values], name: str
) -> None:
    group = workers[name]
    (mount,) = container(group)["volumeMounts"]
    (volume,) = pod(group)["volumes"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/dev/shm")
    shared = gibibytes(volume["emptyDir"]["sizeLimit"])
    assert volume["emptyDir"]["medium"] == "Memory"
    assert int(group["rayStartParams"]["object-store-memory"]) < shared * GIB
    assert shared < gibibytes(container(group)["resources"]["limits"]["memory"]) / 2


def test_the_object_store_holds_the_chunks_that_keep_a_gpu_busy(
    manifest: Values, workers: dict[str, Values]
) -> None:
    job = load(manifest)
    chunk_bytes = job.output.chunk_samples * len(job.tasks) * VIEW_BYTES
    stored = int(workers["gpu"]["rayStartParams"]["object-store-memory"])
    assert stored >= OBJECT_STORE_CHUNKS * chunk_bytes
