"""Settings: what the environment may say, and how it is told what is wrong."""

import pytest
from pydantic import ValidationError

from app.settings import Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SECRETS", '{"bank_key": "hush"'),
        ("SECRETS", '["hush"]'),
        ("SECRETS", '{"bank key": "hush"}'),
        ("SECRETS", '{"bank_key": {"value": "hush"}}'),
        ("VARS", '{"world": "hush"'),
        ("VARS", '"hush"'),
        ("PUBLIC_URL", "hush"),
        ("PUBLIC_URL", "ftp://hush.example"),
        ("PUBLIC_URL", "https://example.com/?hush=1"),
    ],
)
def test_what_is_wrong_is_named_and_not_quoted(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the variable, and shows nothing of what it held: it may be a secret."""
    monkeypatch.setenv(f"AMENDS_{name}", value)

    with pytest.raises(ValidationError) as caught:
        Settings()

    assert f"AMENDS_{name}" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_what_is_right_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects are parsed, and a URL loses the slash that follows it anyway."""
    monkeypatch.setenv("AMENDS_SECRETS", '{"bank_key": "hush"}')
    monkeypatch.setenv("AMENDS_VARS", '{"world": "http://127.0.0.1:1"}')
    monkeypatch.setenv("AMENDS_PUBLIC_URL", "https://amends.example/base/")

    settings = Settings()

    assert settings.secrets == {"bank_key": "hush"}
    assert settings.vars == {"world": "http://127.0.0.1:1"}
    assert settings.public_url == "https://amends.example/base"
    assert "hush" not in repr(settings)


def test_without_a_public_url_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty means not set."""
    monkeypatch.setenv("AMENDS_PUBLIC_URL", "")

    assert Settings().public_url is None
