"""The spoken text of an answer, and its splits."""

import pytest

from voice_agent.speaking import FirstClause, speakable


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Sure! 😊 Let's go 👩‍💻🇩🇪.", "Sure! Let's go."),
        ("🎉🎉", ""),
        ("👍🏽", ""),
        ("It is 20 °C → 68 °F ☀️.", "It is 20 °C 68 °F."),
        ("## A title", "A title"),
        ("**Bold**, `code`, _leaning_, C# and 2 * 3 of snake_case", "Bold, code, leaning, C# and 2 * 3 of snake_case"),
        ("شكرا جزيلا، إلى اللقاء.", "شكرا جزيلا، إلى اللقاء."),
        ("\u202bשלום\u202c עולם", "שלום עולם"),  # noqa: RUF001  Hebrew
        ("می\u200cروم", "می\u200cروم"),
        ("1️⃣ first", "1 first"),
        ("Order #5 costs $1,234.56", "Order #5 costs $1,234.56"),
        ("...", ""),
    ],
)
def test_pictures_and_marks_are_not_read_aloud(text: str, spoken: str) -> None:
    assert speakable(text) == spoken


@pytest.mark.parametrize(
    "text",
    [
        "It costs $1,234.56 at 10:30 a.m. on May 5, 2026. ",
        "Version 3.5 of Dr. Smith's plan has 1,000,000 users. ",
        "Your name is spelled S-M-I-T-H, and the code is A1B2. ",
    ],
)
async def test_numbers_dates_and_spelled_names_are_not_split(text: str) -> None:
    aggregator = FirstClause()  # type: ignore[no-untyped-call]  # Pipecat's
    pieces = [piece.text async for piece in aggregator.aggregate(text)]
    if rest := await aggregator.flush():
        pieces.append(rest.text)
    assert " ".join(pieces).split() == text.split()
    for whole in ("$1,234.56", "10:30", "3.5", "1,000,000", "S-M-I-T-H", "A1B2", "Dr. Smith"):
        assert whole not in text or any(whole in piece for piece in pieces), pieces


@pytest.mark.parametrize(
    ("text", "first"),
    [("Yes of course, one moment please. ", None), ("Yes, of course, one moment please. ", "Yes, of course,")],
)
async def test_a_clause_of_a_second_is_spoken_first(text: str, first: str | None) -> None:
    """The first has 14 characters, and the second 15."""
    aggregator = FirstClause()  # type: ignore[no-untyped-call]  # Pipecat's
    pieces = [piece.text async for piece in aggregator.aggregate(text)]
    if rest := await aggregator.flush():
        pieces.append(rest.text)
    assert pieces[0] == (first or text.strip())
