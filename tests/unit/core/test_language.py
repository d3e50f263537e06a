"""The language of a note follows the conversation's."""

from __future__ import annotations

import pytest

from proxy.core.text.words import language_of


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("What is the height of the bridge?", "en"),
        ("Wie hoch ist die Brücke, und was kostet sie?", "de"),
        ("¿Qué altura tiene el puente y cuánto cuesta?", "es"),
        ("Quelle est la hauteur du pont, et combien coûte-t-il pour nous ?", "fr"),
        ("橋の高さはどのくらいですか。", "ja"),
        ("ブリッジ", "ja"),
        ("这座桥有多高?", "zh"),
        ("", "en"),
        ("12345 !!", "en"),
        ("Мост", "en"),
        ("Please explain the word 桥 in that sentence to me", "en"),
        ("The ferry is called つばめ, and it is the oldest of them for what we know", "en"),
        ("この橋を直して: for each in bridges: return not each", "ja"),
        ("请修改这座桥: for each in bridges: return not each and is", "zh"),
    ],
)
def test_the_language_of_a_text(text: str, language: str):
    assert language_of(text) == language


def test_only_the_beginning_is_looked_at():
    assert language_of("the " * 2000 + "橋の" * 2000) == "en"
