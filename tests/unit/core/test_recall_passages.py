"""What is searched, and how much around a hit is shown."""

from __future__ import annotations

from proxy.core.recall.passages import (
    PASSAGE_BYTES,
    PIECE_BYTES,
    Piece,
    best_of,
    pieces_of,
    widened,
    windows_of,
)


def chat(*positions: int, size: int = 100) -> list[Piece]:
    """Short messages at these positions."""
    return [Piece(position, 0, size, size) for position in positions]


def test_a_short_message_is_one_piece() -> None:
    assert pieces_of(3, "Hello") == [Piece(3, 0, 5, 5)]
    assert pieces_of(3, "") == [Piece(3, 0, 0, 0)]


def test_the_pieces_of_a_long_message_are_all_of_it() -> None:
    text = "\n".join(f"line {number} of the log" for number in range(200))
    pieces = pieces_of(0, text)
    assert "".join(text[piece.start : piece.end] for piece in pieces) == text
    assert all(piece.size <= PIECE_BYTES for piece in pieces)
    assert all(text[piece.end - 1] == "\n" for piece in pieces[:-1])


def test_a_line_without_an_end_is_cut_between_words() -> None:
    text = "word " * 1000
    assert all(text[piece.end - 1] == " " for piece in pieces_of(0, text))


def test_a_text_without_spaces_is_cut_all_the_same() -> None:
    for text in ("x" * 5000, "橋" * 5000):
        pieces = pieces_of(0, text)
        assert "".join(text[piece.start : piece.end] for piece in pieces) == text
        assert all(0 < piece.size <= PIECE_BYTES for piece in pieces)


def test_three_neighbours_are_searched_together() -> None:
    assert windows_of(chat(0, 1, 2, 3, 4)) == [range(3), range(1, 4), range(2, 5)]


def test_no_passage_spans_what_stands_in_the_view() -> None:
    assert windows_of(chat(0, 1, 5, 6, 7, 8)) == [range(2), range(2, 5), range(3, 6)]


def test_nothing_cut_is_nothing_searched() -> None:
    assert windows_of([]) == []


def test_hits_share_no_message() -> None:
    windows = windows_of(chat(*range(9)))
    assert best_of(windows, [0, 1, 2, 6, 3]) == [range(3), range(6, 9), range(3, 6)]
    assert len(best_of(windows, range(len(windows)), most=2)) == 2


def test_a_hit_is_shown_with_three_neighbours_on_either_side() -> None:
    assert sorted(widened(chat(*range(20)), range(8, 11))) == list(range(5, 14))


def test_the_hit_itself_comes_first_and_then_what_is_nearest() -> None:
    assert widened(chat(*range(20)), range(8, 11))[:5] == [8, 9, 10, 7, 11]


def test_neighbours_end_where_the_view_begins() -> None:
    assert sorted(widened(chat(0, 1, 4, 5, 6, 7, 9), range(2, 5))) == [2, 3, 4, 5]


def test_a_passage_is_no_longer_than_a_model_reads_gladly() -> None:
    pieces = chat(*range(20), size=500)
    shown = widened(pieces, range(8, 11))
    assert sum(pieces[index].size for index in shown) <= PASSAGE_BYTES
    assert shown == [8, 9, 10, 7]


def test_a_long_neighbour_hides_what_is_behind_it() -> None:
    pieces = chat(*range(11))
    pieces[7] = Piece(7, 0, 9000, 9000)
    assert sorted(widened(pieces, range(8, 11))) == [8, 9, 10]
