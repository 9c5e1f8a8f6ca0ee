"""The examples of the pages do what the pages say: commands, answers, and programs."""

import asyncio
import json
import os
import re
import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.connectors.functions import load_functions
from app.core.json_value import JsonValue
from app.functions import Call, Refused, Retry
from app.schemas import read_document
from app.schemas.sagas import StartSagaRequest
from app.settings import Settings
from tests.docs.conftest import Scene, module_of
from tests.docs.frames import FRAMES
from tests.docs.pages import ORDER, Block, blocks_in, blocks_of, rows, section, text_of, words
from tests.e2e.load import Api
from tests.waiting import wait_until

pytestmark = [pytest.mark.xdist_group("docs")]

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="the examples need curl")

SHELL_SECONDS_MAX = 60

# Each answer ends with a NUL, so that the last one can be told. A saga's begins with its id.
PRELUDE = r"""
curl() {
  local answer
  answer=$(command curl "$@"; printf x)
  answer=${answer%x}
  printf '%s\0' "$answer"
  case $answer in
    '{"id":"'*) SAGA=${answer#'{"id":"'}; SAGA=${SAGA%%'"'*}; printf %s "$SAGA" > "$KEPT" ;;
  esac
}
SAGA=$(cat "$KEPT")
"""


async def run(script: str, scene: Scene, **more: str) -> str:
    """Run a block as bash does; returns what its last command printed."""
    kept = scene.place / "saga"
    kept.touch()
    shell = await asyncio.create_subprocess_exec(
        *("bash", "-euc", PRELUDE + script),
        cwd=scene.place,
        env={**os.environ, "AMENDS": scene.service.url, "WORLD": scene.world.url}
        | {"KEPT": str(kept), **more},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(shell.communicate(), timeout=SHELL_SECONDS_MAX)
    assert (shell.returncode, errors) == (0, b""), (output, errors)
    *_, last, _ = output.decode().split("\0")
    return last


def find_difference(shown: JsonValue, actual: JsonValue, at: str = "") -> str | None:
    """Where an answer is not as it is shown; what is not shown does not matter."""
    match shown, actual:
        case dict(), dict():
            found = (
                find_difference(value, actual.get(name, "(missing)"), f"{at}.{name}")
                for name, value in shown.items()
            )
        case list(), list() if len(shown) == len(actual):
            found = (
                find_difference(each, other, f"{at}[{index}]")
                for index, (each, other) in enumerate(zip(shown, actual, strict=True))
            )
        case "...", str():
            return None
        case _:
            return None if shown == actual else f"{at}: {actual!r}, and not {shown!r}"
    return next((each for each in found if each is not None), None)


def fits(shown: str, actual: str) -> bool:
    """Whether a text is as it is shown, where ``...`` is whatever."""
    pattern = re.escape(shown.strip()).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, actual.strip()) is not None


async def run_page(page: str, scene: Scene, **more: str) -> int:
    """Run the commands of a page, one block after the other; returns how many answers it shows."""
    blocks, compared = blocks_of(page), 0
    for block in blocks:
        if "file" in block.notes:
            (scene.place / block.notes["file"]).write_text(block.text, encoding="utf-8")
    for block, following in pairwise([*blocks, Block(page=page, line=0, language="", text="")]):
        if block.language != "sh" or "curl" not in block.text:
            continue
        printed = await run(block.text, scene, **more)
        if not following.is_next:
            continue
        if following.language == "json":
            difference = find_difference(json.loads(following.text), json.loads(printed))
            assert difference is None, f"{following.where}: {difference}\n{printed}"
            compared += 1
        elif following.language == "text":
            assert fits(following.text, printed), f"{following.where}:\n{printed}"
            compared += 1
    return compared


@needs_curl
@pytest.mark.e2e
@pytest.mark.parametrize("page", ["definitions", "states-and-verbs"])
async def test_the_commands_of_a_page_do_what_it_says(page: str, scene: Scene) -> None:
    """Each is run as it stands, and each answer that is shown is the real one."""
    assert shown_on(page) == await run_page(page, scene)


def shown_on(page: str) -> int:
    """How many answers a page shows."""
    answers = [block for block in blocks_of(page) if block.language in {"json", "text"}]
    return len([block for block in answers if "shape" not in block.notes])


def test_pages_with_commands_are_run() -> None:
    """The others have none."""
    having = {page for page in ORDER if any(b.language == "sh" for b in blocks_of(page))}

    assert having == {"definitions", "states-and-verbs", "callbacks"}


@needs_curl
@pytest.mark.e2e
async def test_the_reports_of_the_page_on_callbacks_are_taken(
    scene: Scene, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the URL that a tool was given, each is answered as it is shown."""
    given: list[str] = []
    monkeypatch.setattr(scene.shop, "work", lambda _, url: given.append(url))
    saga = await api.insist("POST", "/v1/sagas", {"definition": printing()})
    assert saga.status == 202, saga.text
    await wait_until(lambda: given, what="the order at the shop")

    answers = await run_page("callbacks", scene, CALLBACK_URL=given[0])

    assert answers == shown_on("callbacks")
    shown = await api.rested(saga.json["id"])
    assert (shown["status"], shown["attention"]) == ("completed", True)
    assert shown["steps"][0]["output"] == {"id": "P1", "pages": 3}


def printing(pages: int = 3) -> Any:
    """The definition of the page on callbacks."""
    (block,) = [block for block in blocks_of("callbacks") if block.language == "yaml"]
    document = FRAMES[block.notes["in"]](yaml_of(block))
    document["steps"][0]["action"]["http"]["json"] = {"pages": pages}
    return document


def yaml_of(block: Block) -> Any:
    """A block as the service reads it."""
    return read_document(block.text.encode(), content_type="application/yaml")


@pytest.mark.e2e
@pytest.mark.parametrize(("pages", "end"), [(2, "completed"), (0, "compensated")])
async def test_the_print_shop_works(pages: int, end: str, scene: Scene, api: Api) -> None:
    """It takes on, tells its progress and the outcome; and refuses at once what it cannot do."""
    answer = await api.insist("POST", "/v1/sagas", {"definition": printing(pages)})
    assert answer.status == 202, answer.text

    shown = await api.rested(answer.json["id"])

    (step,) = shown["steps"]
    assert shown["status"] == end
    if end == "completed":
        assert step["output"]["pages"] == pages
        assert step["progress"] is not None
    else:
        assert step["error"]["http_status"] == 422


@pytest.mark.e2e
async def test_the_print_shop_undoes(
    scene: Scene, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saga that is cancelled while it prints has the order cancelled, by what acknowledged it."""
    monkeypatch.setattr(scene.shop, "SECONDS_A_PAGE", 60)
    definition = printing()
    definition["steps"][0]["action"] |= {"late_window": "0s"}
    answer = await api.insist("POST", "/v1/sagas", {"definition": definition})
    saga = answer.json["id"]

    async def waits() -> bool:
        return bool((await api.saga(saga))["steps"][0]["status"] == "waiting")

    await wait_until(waits, what="the acknowledgement")
    await api.call("POST", f"/v1/sagas/{saga}/cancel", {"reason": "no paper needed"})

    shown = await api.rested(saga)

    assert shown["status"] == "compensated", shown
    assert shown["steps"][0]["compensation"]["status"] == "succeeded"


@needs_curl
@pytest.mark.e2e
async def test_the_command_of_the_overview_books_a_trip(scene: Scene) -> None:
    """As it stands, but for the port."""
    (block,) = [block for block in blocks_of("README") if "curl" in block.text]
    command = block.text.replace("http://127.0.0.1:8000", "$AMENDS")

    answer = json.loads(await run(command, scene))

    assert (answer["status"], answer["definition"]["name"]) == ("completed", "book_trip")


# ------------------------------------------------------------------------------------- in Python


def a_call(key: str = "k1") -> Call:
    """What a function is told."""
    return Call(saga_id="s", step="bike", call="action", attempt=1, key=key, timeout_seconds=10.0)


def test_the_function_of_the_page_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One key is one rental; a refusal and a "later" are raised."""
    monkeypatch.chdir(tmp_path)
    bikes = module_of("bikes")

    rented = [bikes.rent("Lisbon", a_call(key)) for key in ("k1", "k1", "k2")]

    assert rented == [{"id": "k1"}, {"id": "k1"}, {"id": "k2"}]
    with pytest.raises(Refused):
        bikes.rent("Nowhere", a_call("k3"))
    with pytest.raises(Retry):
        bikes.rent("Oslo", a_call("k4"))


def test_the_service_finds_the_function_of_the_page(tmp_path: Path) -> None:
    """It is loaded from the sagas directory, and takes what the definition gives."""
    (block,) = [each for each in blocks_in("python") if each.notes.get("module") == "bikes"]
    (tmp_path / "bikes.py").write_text(block.text, encoding="utf-8")

    functions = load_functions(tmp_path)

    assert functions.names == {"bikes.rent"}
    assert functions.find_fault("bikes.rent", ["city"]) is None


def test_every_python_block_is_run() -> None:
    """None is only looked at."""
    assert {block.notes.get("module") for block in blocks_in("python")} == {"bikes", "print_shop"}


# --------------------------------------------------------------------------------------- shapes


@pytest.mark.parametrize("block", blocks_in("json"), ids=lambda block: block.where)
def test_json_is_an_answer_that_is_compared_or_has_a_shape(block: Block) -> None:
    """Nothing is shown that nothing checks."""
    value = json.loads(block.text)
    blocks = blocks_of(block.page)
    before = blocks[blocks.index(block) - 1]

    if "shape" in block.notes:
        {"StartSagaRequest": StartSagaRequest}[block.notes["shape"]].model_validate(value)
    else:
        assert block.is_next
        assert before.language == "sh"


@pytest.mark.parametrize("page", [*ORDER, "README"])
def test_blocks_are_of_kinds_that_are_checked(page: str) -> None:
    """A block in another language would be checked by nobody."""
    kinds = {block.language for block in blocks_of(page)}

    assert kinds <= {"yaml", "json", "sh", "python", "text", "mermaid"}


def test_the_overview_lists_every_setting() -> None:
    """With its name in the environment; the defaults are the code's."""
    told: Mapping[str, str] = {
        name: cells[2]
        for cells in rows(section("README", "Run it for real"))
        for name in words(cells[0])
    }

    assert {f"AMENDS_{name.upper()}" for name in Settings.model_fields} == set(told)
    assert told["AMENDS_LEASE_SECONDS"] == f"`{Settings.model_fields['lease_seconds'].default:g}`"
    assert "`8000`" in told["AMENDS_PORT"]
    assert "make setup" in text_of("README")
