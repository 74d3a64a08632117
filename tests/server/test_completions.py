"""/v1/completions: what it answers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from server_harness import InProcess, assert_refused

from octavo import EngineConfig
from octavo.errors import InvalidRequest


def test_a_completion(served: InProcess) -> None:
    answer = served.complete("a").json()
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["model"] == "toy"
    assert answer["choices"] == [
        {"index": 0, "text": "bcdd", "logprobs": None, "finish_reason": "length", "stop_reason": None}
    ]
    assert answer["usage"] == {
        "prompt_tokens": 1,
        "completion_tokens": 4,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_cached_tokens_are_told(served: InProcess) -> None:
    """Case A18: full blocks, at most L - 1."""
    prompt = "abcd" * 10
    served.complete(prompt)
    assert served.complete(prompt).json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 32}
    salted = served.complete(prompt, cache_salt="salt").json()
    assert salted["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


@pytest.mark.parametrize("stream", [False, True])
def test_prompts_and_choices_keep_their_places(served: InProcess, stream: bool) -> None:
    """Case N07: index = prompt * n + choice, in every form of prompt; echo begins each with its own prompt."""
    prompts = ["a", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxc", "b"]
    expected = [prompt + rest for prompt, rest in zip(prompts, ("bc", "dd", "cd"), strict=True) for _ in range(2)]
    ids = [served.call("POST", "/tokenize", json={"prompt": prompt}).json()["tokens"] for prompt in prompts]
    for form in (prompts, ids):
        response = served.complete(form, n=2, echo=True, max_tokens=2, stream=stream)
        if stream:
            events = served.events(response)
            texts = ["".join(events.of(index)) for index in range(6)]
        else:
            answer = response.json()
            assert [choice["index"] for choice in answer["choices"]] == list(range(6))
            texts = [choice["text"] for choice in answer["choices"]]
            assert answer["usage"]["completion_tokens"] == 12
            assert answer["usage"]["prompt_tokens"] == sum(map(len, ids))
        assert texts == expected
    assert served.complete(ids[0]).json()["choices"][0]["text"] == "bcdd"  # a flat list is one prompt


@pytest.mark.parametrize("stream", [False, True])
def test_max_tokens_is_exact(served: InProcess, stream: bool) -> None:
    """Case D09."""
    for most in (1, 2, 3):
        fields = {"stream_options": {"include_usage": True}} if stream else {}
        response = served.complete("a", max_tokens=most, ignore_eos=True, stream=stream, **fields)
        last = served.events(response).chunks[-1] if stream else response.json()
        assert last["usage"]["completion_tokens"] == most


@pytest.mark.parametrize("most", [-1, -2, 1.5, "3", True, 2**40])
def test_max_tokens_is_a_number_of_tokens(served: InProcess, most: object) -> None:
    """Case D09."""
    assert_refused(served.complete("a", max_tokens=most), 400, "max_tokens")


def test_without_max_tokens_it_runs_to_the_end_of_the_context(served: InProcess) -> None:
    """Case D11: and null is the same as absent (case D10)."""
    answer = served.complete("a", max_tokens=None, ignore_eos=True).json()
    assert answer["usage"]["total_tokens"] == 256
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("logprobs", [None, 0, 1])
def test_max_tokens_zero_with_echo(served: InProcess, logprobs: int | None) -> None:
    """Case D08: the prompt alone, with an entry for each of its tokens, the first without a value."""
    ids = list(range(30, 70))
    for stream in (False, True):
        response = served.complete(ids, max_tokens=0, echo=True, logprobs=logprobs, stream=stream)
        if stream:
            (choice,) = served.events(response).chunks[0]["choices"]
        else:
            answer = response.json()
            assert answer["usage"]["completion_tokens"] == 0
            (choice,) = answer["choices"]
        assert choice["text"] == served.call("POST", "/detokenize", json={"tokens": ids}).json()["prompt"]
        assert choice["finish_reason"] == "length"
        if logprobs is None:
            assert choice["logprobs"] is None
        else:
            assert len(choice["logprobs"]["token_logprobs"]) == 40
            assert choice["logprobs"]["token_logprobs"][0] is None
            assert (choice["logprobs"]["top_logprobs"] is None) == (logprobs == 0)
    assert_refused(served.complete("a", max_tokens=0), 400, "max_tokens")


def test_logprobs_of_an_echoed_prompt(served: InProcess) -> None:
    """Cases J01, J06: strict JSON, whatever was unreachable; offsets count characters."""
    answer = served.complete("ab", echo=True, logprobs=5, top_k=1, temperature=1, max_tokens=2).json()
    (choice,) = answer["choices"]
    lists = choice["logprobs"]
    assert choice["text"] == "abcd"
    assert lists["tokens"] == ["a", "b", "c", "d"]
    assert lists["text_offset"] == [0, 1, 2, 3]
    assert lists["token_logprobs"][0] is None
    for value, top in zip(lists["token_logprobs"][1:], lists["top_logprobs"][1:], strict=True):
        assert -9999 <= value <= 0
        assert list(top.values()) == sorted(top.values(), reverse=True)
        assert len(top) in (5, 6)
        assert sum(map(math.exp, top.values())) <= 1 + 1e-5


def test_prompt_logprobs(served: InProcess) -> None:
    """Case G11: up to the cap; not with a stream."""
    (choice,) = served.complete("abc", prompt_logprobs=2).json()["choices"]
    first, *others = choice["prompt_logprobs"]
    assert first is None
    assert [next(iter(each.values()))["decoded_token"] for each in others] == ["b", "c"]
    assert all(len(each) in (2, 3) for each in others)
    (both,) = served.complete("abc", prompt_logprobs=0, echo=True, logprobs=5).json()["choices"]
    assert [len(each) for each in both["prompt_logprobs"][1:]] == [1, 1]
    assert_refused(served.complete("abc", prompt_logprobs=2, stream=True), 400, "prompt_logprobs")
    for asked in (-1, 21, 49152):
        assert_refused(served.complete("abc", prompt_logprobs=asked), 400, "prompt_logprobs")


@pytest.mark.parametrize("stop", [None, []])
def test_no_stops(served: InProcess, stop: object) -> None:
    """Case F05: absent, null and [] are alike."""
    assert served.complete("a", stop=stop).json()["choices"][0]["text"] == "bcdd"


@pytest.mark.parametrize(
    ("fields", "text", "reason"),
    [
        ({"stop": "c"}, "b", "c"),
        ({"stop": ["x", "y", "z", "w", "d"]}, "bc", "d"),
        ({"stop": ["c" * 10_000]}, "bcdd", None),
        ({"stop": "cd", "include_stop_str_in_output": True}, "bcd", "cd"),
        ({"stop": "\n"}, "bcdd", None),
        ({"bad_words": ["c"]}, None, None),
        ({"bad_words": []}, "bcdd", None),
    ],
)
def test_stops(served: InProcess, fields: dict[str, object], text: str | None, reason: str | None) -> None:
    """Cases F03, F05, G10: streamed and not alike."""
    (choice,) = served.complete("a", **fields).json()["choices"]
    if text is not None:
        assert choice["text"] == text
    else:
        assert "c" not in choice["text"]
    assert choice["stop_reason"] == reason
    events = served.events(served.complete("a", stream=True, **fields))
    assert events.text == choice["text"]
    assert events.chunks[-1]["choices"][0]["stop_reason"] == reason


def test_stop_token_ids(served: InProcess) -> None:
    token = served.call("POST", "/tokenize", json={"prompt": "c"}).json()["tokens"][0]
    (choice,) = served.complete("a", stop_token_ids=[token]).json()["choices"]
    assert (choice["text"], choice["stop_reason"], choice["finish_reason"]) == ("b", token, "stop")


def test_a_seed_draws_the_same_again(served: InProcess) -> None:
    """Case B02 over HTTP: choices differ, and choice 0 is that of n = 1."""
    ids = served.call("POST", "/tokenize", json={"prompt": "xyz"}).json()["tokens"]  # the model rates them alike
    hot = {"temperature": 2.0, "logit_bias": {str(each): 100 for each in ids}, "max_tokens": 8, "seed": 7}
    three = [choice["text"] for choice in served.complete("z", n=3, **hot).json()["choices"]]
    assert three == [choice["text"] for choice in served.complete("z", n=3, **hot).json()["choices"]]
    assert len(set(three)) == 3
    assert served.complete("z", **hot).json()["choices"][0]["text"] == three[0]


@pytest.mark.parametrize("kept", [{}, {"logprobs": 3}, {"echo": True}, {"echo": True, "logprobs": 2}, {"n": 3}])
@pytest.mark.parametrize("prompt", ["a", "\n"])
def test_a_stream_says_what_the_whole_says(served: InProcess, kept: dict[str, object], prompt: str) -> None:
    """Case I09."""
    fields = {"temperature": 1.5, "seed": 3, "max_tokens": 9, **kept}
    whole = served.complete(prompt, **fields).json()
    events = served.events(served.complete(prompt, stream=True, stream_options={"include_usage": True}, **fields))
    assert events.done
    *chunks, last = events.chunks
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert last["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    for choice in whole["choices"]:
        pieces = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == choice["index"]]
        assert "".join(piece["text"] for piece in pieces) == choice["text"]
        assert [piece["finish_reason"] for piece in pieces if piece["finish_reason"]] == [choice["finish_reason"]]
        if choice["logprobs"] is not None:
            for name, values in choice["logprobs"].items():
                parts = [piece["logprobs"][name] for piece in pieces if piece["logprobs"] is not None]
                assert [value for part in parts for value in part] == values


def test_a_prompt_longer_than_a_steps_budget(serve: Callable[..., InProcess]) -> None:
    """Case D07: prompts are always cut into steps; nothing switches that off, so none waits for a budget it has not."""
    server = serve(EngineConfig(num_blocks=64, max_seqs=8, max_batched_tokens=32))
    for stream in (False, True):
        response = server.complete("x" * 63 + "a", stream=stream)
        text = server.events(response).text if stream else response.json()["choices"][0]["text"]
        assert text == "bcdd"
    with pytest.raises(InvalidRequest, match="must be at least max_seqs"):
        EngineConfig(max_seqs=8, max_batched_tokens=7)


def test_an_answer_cut_inside_a_character(served: InProcess) -> None:
    """Case I02: its bytes are dropped, all before them stays, streamed and not alike."""
    for stream in (False, True):
        response = served.complete("\n", max_tokens=3, stream=stream)
        text = served.events(response).text if stream else response.json()["choices"][0]["text"]
        assert text == "Hello"


@pytest.mark.parametrize("stream", [False, True])
def test_the_likeliest_of_several_samples(served: InProcess, stream: bool) -> None:
    """best_of: the best of the answers that n would draw; a stream tells them when all have ended."""
    drawn = {"max_tokens": 6, "temperature": 2, "seed": 5, "ignore_eos": True}
    every = served.complete("x", n=5, logprobs=0, **drawn).json()["choices"]
    ranked = sorted(every, key=lambda choice: -choice["cumulative_logprob"])
    assert [choice["index"] for choice in ranked[:2]] != [0, 1]
    fields = {"stream_options": {"include_usage": True}} if stream else {}
    response = served.complete("x", n=2, best_of=5, stream=stream, **drawn, **fields)
    if stream:
        events = served.events(response)
        assert len(events.chunks) == 3  # a choice, a choice, the usage
        texts, last = [*events.of(0), *events.of(1)], events.chunks[-1]
    else:
        last = response.json()
        texts = [choice["text"] for choice in last["choices"]]
        assert all(choice["logprobs"] is None for choice in last["choices"])
        likely = [choice["cumulative_logprob"] for choice in last["choices"]]
        assert likely == [choice["cumulative_logprob"] for choice in ranked[:2]]
    assert texts == [choice["text"] for choice in ranked[:2]]
    assert last["usage"]["completion_tokens"] == 30  # of all five
    served.assert_idle()


def test_best_of_as_many_as_n_changes_nothing(served: InProcess) -> None:
    assert served.complete("a", n=2, best_of=2).json()["choices"] == served.complete("a", n=2).json()["choices"]


@pytest.mark.parametrize("fields", [{"beam_width": 3}, {"use_beam_search": True, "best_of": 3}])
def test_beams(served: InProcess, fields: dict[str, object]) -> None:
    """The best is the greedy answer of this model; a stream tells each answer whole, at the end."""
    asked = {"max_tokens": 4, "temperature": None, "n": 2, "length_penalty": 0.5, "early_stopping": "never", **fields}
    answer = served.complete(["a", "b"], **asked).json()
    texts = [choice["text"] for choice in answer["choices"]]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert (texts[0], texts[2]) == ("bcdd", "cddd")
    scores = [choice["cumulative_logprob"] for choice in answer["choices"]]
    assert 0 >= scores[0] > scores[1]
    events = served.events(served.complete(["a", "b"], stream=True, **asked))
    assert [events.of(index) for index in range(4)] == [[text] for text in texts]
    assert events.done
    served.assert_idle()


def test_as_many_beams_as_answers(served: InProcess) -> None:
    """What `use_beam_search` meant first: n beams, all of which are answers."""
    answer = served.complete("a", use_beam_search=True, n=3).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert answer["choices"] == served.complete("a", beam_width=3, n=3).json()["choices"]
