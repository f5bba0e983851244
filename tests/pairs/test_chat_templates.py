"""Prompts in chat mode: the forms of chat templates, and templates that fail or lose the prompt."""

import pytest
from helpers.tiny import CHAT_TEMPLATE, byte_tokenizer, tiny_pair

import specdemo
from specdemo.pairs.pair import chat_text, encode_prompt
from specdemo.records.limits import UserError
from specdemo.records.trace import Mode

PARTS = (
    "{% for message in messages %}<s>{{ message.role | capitalize }}:"
    "{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}"
    "</s>{% endfor %}Assistant:"
)
PROMPT = 'Is 1 < 2?\nAnswer "yes" or "no", naïvely.  '
REDUCED = PROMPT.replace("or", "").replace('no"', "")


def with_template(template):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (CHAT_TEMPLATE, f"<s>{PROMPT}</s>"),
        ("{{ messages[0].content | trim }}", PROMPT.strip()),
        ("{{ messages[0].content | upper }}", PROMPT.upper()),
        ("{{ messages[0].content | tojson }}", '"' + PROMPT.replace('"', '\\"').replace("\n", "\\n") + '"'),
        ("{{ messages[0].content | e }}", PROMPT.replace("<", "&lt;").replace('"', "&#34;")),
        (PARTS, f"<s>User:{PROMPT}</s>Assistant:"),
        ("{{ messages[0].content[0].text }}", PROMPT),
        ("{'type': 'chat'} {{ messages[0].content }}", f"{{'type': 'chat'}} {PROMPT}"),
        ("{'type': 'chat'} " + PARTS, f"{{'type': 'chat'}} <s>User:{PROMPT}</s>Assistant:"),
        ("{{ messages[0].content | replace('or', '') | replace('no\"', '') }}", REDUCED),
        (
            "{% if messages[0].content is string %}{{ raise_exception('parts!') }}{% endif %}" + PARTS,
            f"<s>User:{PROMPT}</s>Assistant:",
        ),
    ],
)
def test_a_template_gets_the_message_in_the_form_that_it_reads(template, text):
    tokenizer = with_template(template)
    assert chat_text(tokenizer, PROMPT) == text
    assert encode_prompt(tokenizer, PROMPT, Mode.CHAT) == tokenizer(text, add_special_tokens=False).input_ids


@pytest.mark.parametrize("prompt", ["User", "?", "Assistant: user"])
def test_words_of_the_template_are_not_taken_for_the_prompt(prompt):
    assert prompt in chat_text(with_template(PARTS), prompt).removeprefix("<s>User:").partition("</s>")[0]


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('Only one\nrole.') }}", "fails: Only one role;"),
        ("{% for m in messages %}{{ m.content }", "fails: unexpected '}';"),
        (
            "{{ messages[0].content + messages[0].mood.name }}",
            "fails: 'dict object' has no attribute 'mood';",
        ),
        ("{{ messages[0].content + 1 }}", 'fails: can only concatenate str (not "int") to str;'),
        ("{{ 1 // 0 }}", "fails: integer division or modulo by zero;"),
        ("{{ raise_exception('\u202eno' * 500) }}", "fails: U+202Eno"),
        ({"tools": CHAT_TEMPLATE}, "fails: This model has multiple chat templates"),
        ("<s>Answer me.</s>", "leaves out the prompt;"),
        ("{{ messages[0].content[:9] }}", "leaves out the prompt;"),
        ("Is a bot. {{ messages[0].content if messages[0].content|length < 20 }}", "leaves out the prompt;"),
        ("{{ messages[0].content if messages[0].content is not string }}", "leaves out the prompt;"),
        ("{% if 'Is' not in messages[0].content %}{{ messages[0].content }}{% endif %}", "leaves out"),
        (None, "tiny target has no chat template; set the prompt mode"),
    ],
)
def test_a_template_that_is_missing_fails_or_loses_the_prompt_is_refused_in_a_sentence(template, reason):
    pair = tiny_pair()
    pair.tokenizer.chat_template = template
    with pytest.raises(UserError) as refused:
        specdemo.compare(pair, PROMPT)
    sentence = str(refused.value)
    assert reason in sentence and len(sentence) < 1_200 and "\n" not in sentence
    assert template is None or sentence.startswith(f"The target's chat template {reason}")
    assert specdemo.compare(pair, PROMPT, mode="raw", max_new_tokens=2).totals["identical"]


def test_thoughts_of_an_earlier_answer_and_a_switch_may_be_removed():
    template = (
        "{% for m in messages %}<s>"
        "{{ m.content.split('</think>')[-1] | replace('/no_think', '') | trim }}</s>"
        "{% endfor %}<think>"
    )
    turns = "Hello /no_think", "<think>A greeting.</think> Hi!", "/no_think How are you?"
    text = chat_text(with_template(template), *turns)
    assert text == "<s>Hello</s><s>Hi!</s><s>How are you?</s><think>"
