"""What a request comes back as: text, ends, stops, log-probabilities, choices. On a toy whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from toy import ToyFactory

from octavo import LLM, SamplingParams
from octavo.engine.outputs import RequestOutput
from octavo.errors import InvalidRequest, RequestFailed
from octavo.exec.sampler import SequenceSampler

CHAIN = ["Hel", "lo", " E", "ND", " mo", "re", "<eos>"]


def ask(llm: LLM, params: SamplingParams, prompt: str = "Hel") -> RequestOutput:
    """One prompt's output, the streamed text checked against the whole."""
    text, output = "", None
    for delta in llm.stream(prompt, params):
        text += delta.text
        output = delta.output or output
    assert output is not None
    assert text == output.text
    return output


def test_the_model_s_end_token_ends_and_is_counted(toy: ToyFactory) -> None:
    output = ask(toy(CHAIN), SamplingParams())
    choice = output.choices[0]
    assert (choice.text, choice.finish_reason, choice.stop_reason) == ("lo END more", "stop", None)
    assert output.metrics.output_tokens == len(choice.tokens) == 6


@pytest.mark.parametrize("count", [1, 2, 3])
def test_max_tokens_is_exact(toy: ToyFactory, count: int) -> None:
    """Case D09."""
    output = ask(toy(CHAIN), SamplingParams(max_tokens=count))
    assert len(output.choices[0].tokens) == count
    assert output.choices[0].finish_reason == "length"


def test_a_stop_string_that_spans_tokens_is_cut_or_kept(toy: ToyFactory) -> None:
    """Case F02: nothing is lost, nothing of the stop is shown."""
    llm = toy(CHAIN)
    output = ask(llm, SamplingParams(stop=("zzz", "END")))
    assert (output.text, output.choices[0].finish_reason, output.choices[0].stop_reason) == ("lo ", "stop", "END")
    assert ask(llm, SamplingParams(stop=("END",), include_stop=True)).text == "lo END"
    assert ask(llm, SamplingParams(stop=("more@@@@@@@@",))).text == "lo END more"


def test_a_stop_string_in_the_prompt_does_not_count(toy: ToyFactory) -> None:
    """Case F10, across the seam too."""
    assert ask(toy(CHAIN), SamplingParams(stop=("Hel", "Hello"))).text == "lo END more"


def test_min_tokens_delays_stops_and_ends(toy: ToyFactory) -> None:
    """Case F06."""
    llm = toy(CHAIN)
    assert ask(llm, SamplingParams(stop=("END",), min_tokens=4)).text == "lo END more"
    output = ask(llm, SamplingParams(min_tokens=8, max_tokens=8))
    assert output.choices[0].finish_reason == "length"
    eos = llm.tokenizer.encode("<eos>", parse_special=True)[0]
    assert eos not in output.choices[0].tokens[:7]


def test_ignore_eos_runs_on(toy: ToyFactory) -> None:
    """Case F07: no end id of the model ends it, one named by the caller still does."""
    llm = toy(CHAIN, eos=("<eos>", "<|im_end|>"))
    output = ask(llm, SamplingParams(ignore_eos=True, max_tokens=10))
    assert (len(output.choices[0].tokens), output.choices[0].finish_reason) == (10, "length")
    eos = llm.tokenizer.encode("<eos>", parse_special=True)[0]
    named = ask(llm, SamplingParams(ignore_eos=True, max_tokens=10, stop_token_ids=(eos,)))
    assert (named.choices[0].finish_reason, named.choices[0].stop_reason) == ("stop", eos)


@pytest.mark.parametrize("eos", [("<eos>", "<|im_end|>"), ("<|im_end|>", "<eos>")])
def test_every_end_id_counts(toy: ToyFactory, eos: tuple[str, str]) -> None:
    """Case F09."""
    output = ask(toy(["a", "b", "<|im_end|>", "c"], eos=eos), SamplingParams(), prompt="a")
    assert (output.text, output.choices[0].finish_reason) == ("b", "stop")


def test_stop_token_ids_hide_or_show_their_text(toy: ToyFactory) -> None:
    """Case F03."""
    llm = toy(CHAIN)
    stop = llm.tokenizer.encode("ND")[0]
    hidden = ask(llm, SamplingParams(stop_token_ids=(stop,)))
    assert (hidden.text, hidden.choices[0].stop_reason, len(hidden.choices[0].tokens)) == ("lo E", stop, 3)
    assert ask(llm, SamplingParams(stop_token_ids=(stop,), include_stop=True)).text == "lo END"
    eos = llm.tokenizer.encode("<eos>", parse_special=True)[0]
    shown = SamplingParams(stop_token_ids=(eos,), include_stop=True, skip_special_tokens=False)
    assert ask(llm, shown).text == "lo END more<eos>"


def test_a_stop_that_is_a_control_token(toy: ToyFactory) -> None:
    """Case F04."""
    output = ask(toy(["a", "b", "<|im_end|>", "c"]), SamplingParams(stop=("<|im_end|>",), max_tokens=8), prompt="a")
    assert (output.text, output.choices[0].finish_reason) == ("b", "stop")


def test_padded_output_rows_are_never_sampled_or_listed(toy: ToyFactory) -> None:
    """Case H11."""
    llm = toy(CHAIN, padded_rows=64)
    output = ask(llm, SamplingParams(logprobs=20, temperature=2.0, seed=1, max_tokens=20, ignore_eos=True))
    listed = {top.token for entry in output.choices[0].logprobs or () for top in entry.top}
    assert max(listed | set(output.choices[0].tokens)) < llm.tokenizer.size


def test_context_ends_an_answer_without_a_limit(toy: ToyFactory) -> None:
    """Case D11: prompt and answer fill the context exactly."""
    output = ask(toy(CHAIN), SamplingParams(max_tokens=None, ignore_eos=True))
    assert output.metrics.prompt_tokens + output.metrics.output_tokens == 256
    assert output.choices[0].finish_reason == "length"


def test_prompt_logprobs_alone(toy: ToyFactory) -> None:
    """Case D08: max_tokens 0 computes the prompt and nothing else."""
    llm = toy(CHAIN)
    output = llm.generate("Hello END", SamplingParams(max_tokens=0, prompt_logprobs=1))[0]
    scored = output.prompt_logprobs
    assert scored is not None
    assert (len(scored), scored[0]) == (len(output.prompt_tokens), None)
    assert [entry.token for entry in scored[1:] if entry] == list(output.prompt_tokens[1:])
    assert all(entry.top[0].token == entry.token for entry in scored[1:] if entry)
    assert (output.text, output.choices[0].finish_reason, output.metrics.output_tokens) == ("", "length", 0)
    with pytest.raises(InvalidRequest, match="max_tokens"):
        llm.generate("Hel", SamplingParams(max_tokens=0))


def test_leaving_a_stream_gives_everything_back(toy: ToyFactory) -> None:
    """Case E01."""
    llm = toy(CHAIN)
    stream = llm.stream("Hel", SamplingParams(max_tokens=200, ignore_eos=True, n=3))
    next(iter(stream))
    stream.close()
    stats = llm.stats()
    assert (stats.running, stats.waiting, stats.blocks_used) == (0, 0, 0)
    assert ask(llm, SamplingParams()).text == "lo END more"


def test_abort_is_harmless_at_any_time(toy: ToyFactory) -> None:
    """Case E04."""
    llm = toy(CHAIN)
    assert not llm.engine.abort(12345)
    request = llm.engine.add("Hel", SamplingParams(), seed=0)
    assert llm.engine.abort(request)
    assert not llm.engine.abort(request)
    ended = llm.engine.step()
    assert [delta.finish_reason for delta in ended] == ["abort"]
    assert not llm.engine.has_work


def test_a_fault_in_one_sampler_ends_that_request_alone(toy: ToyFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case E09."""
    llm = toy(CHAIN)
    original = SequenceSampler.constrain

    def faulty(self: SequenceSampler, raw: np.ndarray, tokens: list[int], prompt_len: int) -> np.ndarray:
        if prompt_len == 2 and len(tokens) == 4:
            raise ZeroDivisionError("injected")
        return original(self, raw, tokens, prompt_len)

    monkeypatch.setattr(SequenceSampler, "constrain", faulty)
    bad, *good = llm.generate(["Hello", "Hel", " END", "ND"], SamplingParams(logprobs=0), progress=False)
    assert bad.choices[0].finish_reason == "error"
    assert isinstance(bad.error, RequestFailed)
    assert [output.text for output in good] == ["lo END more", " more", " more"]
    assert llm.stats().blocks_used == 0


def test_a_fault_of_a_whole_step_leaves_a_working_engine(toy: ToyFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = toy(CHAIN)
    executor = llm.engine._executor
    with monkeypatch.context() as patch:
        patch.setattr(executor, "_forward", lambda inputs: 1 / 0)
        outputs = llm.generate(["Hel", "lo"], SamplingParams(n=2), progress=False)
    assert [choice.finish_reason for output in outputs for choice in output.choices] == ["error"] * 4
    assert llm.stats().blocks_used == 0
    assert ask(llm, SamplingParams()).text == "lo END more"


@pytest.mark.parametrize(
    ("prompt", "params", "param"),
    [
        ("", {}, "prompt"),
        ([], {}, "prompt"),
        ([0, -1], {}, "prompt"),
        ([0, 10**6], {}, "prompt"),
        ([True, 1], {}, "prompt"),
        ("Hel" * 300, {}, "prompt"),
        ("Hel" * 10**6, {}, "prompt"),
        ("Hel", {"max_tokens": 300}, "max_tokens"),
        ("Hel", {"logit_bias": {191222: 1.0}}, "logit_bias"),
        ("Hel", {"stop_token_ids": (151645,)}, "stop_token_ids"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(toy: ToyFactory, prompt: object, params: dict, param: str) -> None:
    """Cases G02, D01: nothing is started, the others go on."""
    llm = toy(CHAIN)
    with pytest.raises(InvalidRequest) as refused:
        llm.generate(["Hel", prompt], SamplingParams(**params) if params else None, progress=False)  # type: ignore[list-item]
    assert refused.value.param == param
    assert not llm.engine.has_work or all(d.finish_reason == "abort" for d in llm.engine.step())
    assert llm.stats().blocks_used == 0
    assert ask(llm, SamplingParams()).text == "lo END more"


def test_a_request_that_the_pool_can_never_hold(toy: ToyFactory) -> None:
    """Case D02, choice 16."""
    llm = toy(CHAIN, num_blocks=4)
    with pytest.raises(InvalidRequest, match="64 tokens") as refused:
        llm.generate("Hel", SamplingParams(max_tokens=100))
    assert refused.value.code == "pool_too_small"
    assert len(llm.generate("Hel", SamplingParams(max_tokens=63, ignore_eos=True))[0].choices[0].tokens) == 63


def test_per_request_state_does_not_outlive_the_request(toy: ToyFactory) -> None:
    """Case E06."""
    llm = toy(CHAIN)
    llm.generate(["Hel"] * 40, SamplingParams(n=2, max_tokens=2), progress=False)
    engine = llm.engine
    assert not engine._requests.by_id
    assert not engine._requests._answers
    assert not engine._executor._states
    assert not engine._scheduler._live
