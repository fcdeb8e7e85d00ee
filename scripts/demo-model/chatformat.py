"""The chat template and its exact tokenization, shared by training, export and goldens."""
UNK, BOS, EOS = 0, 1, 2
ROLE_IDS = {"system": 3, "user": 4, "assistant": 5}
END = 6
CONTROL_SYMBOLS = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]

TEMPLATE = ("{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")

# The same without tools; with them the system's message lists them, and calls and results are marked.
TOOL_TEMPLATE = r"""{{- bos_token }}
{%- set system = messages[0]['content'] if messages and messages[0]['role'] == 'system' else '' %}
{%- if tools %}
    {{- '<|system|>' + system + ('\n\n' if system else '') + 'These functions can be called:\n<tools>' }}
    {%- for tool in tools %}{{ '\n' }}{{ tool | tojson }}{% endfor %}
    {{- '\n</tools>\nTo call one, answer with its name and its arguments as JSON:' }}
    {{- '\n<tool_call>\n{"name": "NAME", "arguments": {}}\n</tool_call><|end|>' }}
{%- endif %}
{%- for message in messages %}
    {%- if message['role'] == 'tool' %}
        {{- '<|user|><tool_response>\n' + message['content'] + '\n</tool_response><|end|>' }}
    {%- elif not (tools and loop.first and message['role'] == 'system') %}
        {{- '<|' + message['role'] + '|>' + (message['content'] or '') }}
        {%- for call in message['tool_calls'] or [] %}
            {{- '<tool_call>\n{"name": "' + call['function']['name'] + '", "arguments": ' }}
            {{- call['function']['arguments'] | tojson }}{{ '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""


def render(messages, generation_prompt=True):
    """The template as text, for reading; ids come from encode()."""
    text = "<s>" + "".join("<|%s|>%s<|end|>" % (m["role"], m["content"]) for m in messages)
    return text + ("<|assistant|>" if generation_prompt else "")


def encode(sp, messages, generation_prompt=True):
    """Token ids: control tokens by id, the text between them through sentencepiece. sp: SentencePieceProcessor."""
    ids = [BOS]
    for m in messages:
        ids += [ROLE_IDS[m["role"]]] + sp.encode(m["content"]) + [END]
    return ids + ([ROLE_IDS["assistant"]] if generation_prompt else [])


def encode_with_mask(sp, messages):
    """(ids, learn): learn[i] is True where the model shall learn to predict ids[i] (assistant text and its end)."""
    ids, learn = [BOS], [False]
    for m in messages:
        body = sp.encode(m["content"]) + [END]
        ids += [ROLE_IDS[m["role"]]] + body
        learn += [False] + [m["role"] == "assistant"] * len(body)
    return ids, learn
