/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat templates that are known: by which pieces of its source, and what they write.
 */
#include "text/chat.h"

/* Sources that do more than write turns. */
#define MORE "strftime_now", "{%macro", "enable_thinking)"

#define CHATML_PIECE "'<|im_start|>'+message.role+'\\n'+message.content+'<|im_end|>"
#define CHATML_TURN(role)                                                                                              \
    { "<|im_start|>" role "\n", "<|im_end|>\n" }
#define CHATML_TURNS                                                                                                   \
    .system = CHATML_TURN("system"), .user = CHATML_TURN("user"), .assistant = CHATML_TURN("assistant"),               \
    .reply = "<|im_start|>assistant\n"

#define LLAMA3_HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define LLAMA3_TURN(role)                                                                                              \
    { LLAMA3_HEADER(role), "<|eot_id|>" }
#define LLAMA3_PIECE "'<|start_header_id|>'+message.role+'<|end_header_id|>\\n\\n'+message.content|trim+'<|eot_id|>'"

#define MISTRAL_RULES (KVT_CHAT_TAKES_TURNS | KVT_CHAT_SYSTEM_FIRST)

#define GEMMA_TURN(role)                                                                                               \
    { "<start_of_turn>" role "\n", "<end_of_turn>\n" }
#define GEMMA_TURNS .user = GEMMA_TURN("user"), .assistant = GEMMA_TURN("model"), .reply = "<start_of_turn>model\n"

#define PHI3_TURN(role)                                                                                                \
    { "<|" role "|>\n", "<|end|>\n" }
#define PHI3_TURNS                                                                                                     \
    .system = PHI3_TURN("system"), .user = PHI3_TURN("user"), .assistant = PHI3_TURN("assistant"),                     \
    .reply = "<|assistant|>\n", .ending = "<|endoftext|>"

#define DEEPSEEK_BOS "<｜begin▁of▁sentence｜>"
#define DEEPSEEK_EOS "<｜end▁of▁sentence｜>"
#define DEEPSEEK_V3_TURNS                                                                                              \
    .user = {"<｜User｜>", ""}, .assistant = {"<｜Assistant｜>", DEEPSEEK_EOS}, .system = {"", ""},                    \
    .reply = "<｜Assistant｜>"

static const struct kvt_chat_template rows[] = {
    {
        .name = "chatml",
        .pieces = {CHATML_PIECE},
        .without = {MORE, "think>", "<|im_sep|>"},
        CHATML_TURNS,
        .default_open = "'<|im_start|>system\\n",
        .default_end = "<|im_end|>",
    },
    {
        .name = "qwen3",
        .pieces = {CHATML_PIECE, "message.content.split('</think>')[-1].lstrip('\\n')",
                   "loop.index0>ns.last_query_index"},
        .without = {MORE},
        CHATML_TURNS,
        .thinking_reply = "'<|im_start|>assistant\\n<think>\\n'",
        .rules = KVT_CHAT_FORGET_THOUGHT | KVT_CHAT_SHOW_THOUGHT,
    },
    {
        .name = "llama2",
        .pieces = {"{{bos_token+'[INST] '+content.strip()+' [/INST]'}}",
                   "'<<SYS>>\\n'+system_message+'\\n<</SYS>>\\n\\n'+message.content"},
        .without = {MORE},
        .bos = "<s>",
        .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
        .user = {"[INST] ", " [/INST]"},
        .assistant = {" ", " </s>"},
        .reply = "",
        .rules = KVT_CHAT_TAKES_TURNS | KVT_CHAT_SYSTEM_FIRST | KVT_CHAT_SYSTEM_IN_USER | KVT_CHAT_TRIM_TURN |
                 KVT_CHAT_BOS_EACH_TURN,
    },
    {
        .name = "llama3",
        .pieces = {LLAMA3_PIECE},
        .without = {MORE, "tools", "functions", "date_string"},
        .bos = "<|begin_of_text|>",
        .system = LLAMA3_TURN("system"),
        .user = LLAMA3_TURN("user"),
        .assistant = LLAMA3_TURN("assistant"),
        .reply = LLAMA3_HEADER("assistant"),
        .rules = KVT_CHAT_TRIM,
    },
    {
        /* The day is the one that the source has for callers who name none, in 3.2 for those who have no clock. */
        .name = "llama3.1",
        .pieces = {LLAMA3_PIECE,
                   "{{'Cutting Knowledge Date: December 2023\\n'}}{{'Today Date: '+date_string+'\\n\\n'}}",
                   "{%setdate_string='26 Jul 2024'%}"},
        .bos = "<|begin_of_text|>",
        .system = {LLAMA3_HEADER("system") "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
                   "<|eot_id|>"},
        .user = LLAMA3_TURN("user"),
        .assistant = LLAMA3_TURN("assistant"),
        .reply = LLAMA3_HEADER("assistant"),
        .rules = KVT_CHAT_TRIM | KVT_CHAT_SYSTEM_FIRST | KVT_CHAT_SYSTEM_ALWAYS,
    },
    {
        .name = "mistral",
        .pieces = {"{{'[INST] '+message.content+' [/INST]'}}", "{{message.content+eos_token}}"},
        .without = {MORE, "system"},
        .bos = "<s>",
        .user = {"[INST] ", " [/INST]"},
        .assistant = {"", "</s>"},
        .reply = "",
        .rules = KVT_CHAT_TAKES_TURNS | KVT_CHAT_NO_SYSTEM,
    },
    {
        .name = "mistral-v0.1",
        .pieces = {"{{'[INST] '+message.content+' [/INST]'}}", "{{message.content+eos_token+' '}}"},
        .without = {MORE, "system"},
        .bos = "<s>",
        .user = {"[INST] ", " [/INST]"},
        .assistant = {"", "</s> "},
        .reply = "",
        .rules = KVT_CHAT_TAKES_TURNS | KVT_CHAT_NO_SYSTEM,
    },
    {
        .name = "mistral-v1",
        .pieces = {"{{' [INST] '+system_message+'\\n\\n'+message.content+' [/INST]'}}",
                   "{{' [INST] '+message.content+' [/INST]'}}", "{{' '+message.content+eos_token}}"},
        .without = {MORE},
        .bos = "<s>",
        .system = {"", "\n\n"},
        .user = {" [INST] ", " [/INST]"},
        .assistant = {" ", "</s>"},
        .reply = "",
        .rules = MISTRAL_RULES | KVT_CHAT_SYSTEM_IN_USER,
    },
    {
        .name = "mistral-v3",
        .pieces = {"{{'[INST] '+system_message+'\\n\\n'+message.content+'[/INST]'}}",
                   "{{'[INST] '+message.content+'[/INST]'}}", "{{' '+message.content|trim+eos_token}}"},
        .without = {MORE},
        .bos = "<s>",
        .system = {"", "\n\n"},
        .user = {"[INST] ", "[/INST]"},
        .assistant = {" ", "</s>"},
        .reply = "",
        .rules = MISTRAL_RULES | KVT_CHAT_SYSTEM_IN_LAST | KVT_CHAT_TRIM_ASSISTANT,
    },
    {
        .name = "mistral-tekken",
        .pieces = {"{{'[INST]'+system_message+'\\n\\n'+message.content+'[/INST]'}}",
                   "{{'[INST]'+message.content+'[/INST]'}}", "{{message.content+eos_token}}"},
        .without = {MORE},
        .bos = "<s>",
        .system = {"", "\n\n"},
        .user = {"[INST]", "[/INST]"},
        .assistant = {"", "</s>"},
        .reply = "",
        .rules = MISTRAL_RULES | KVT_CHAT_SYSTEM_IN_LAST,
    },
    {
        .name = "mistral-v7",
        .pieces = {"{{'[SYSTEM_PROMPT] '+message.content+'[/SYSTEM_PROMPT]'}}",
                   "{{'[INST] '+message.content+'[/INST]'}}", "{{' '+message.content+eos_token}}"},
        .without = {MORE},
        .bos = "<s>",
        .system = {"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"},
        .user = {"[INST] ", "[/INST]"},
        .assistant = {" ", "</s>"},
        .reply = "",
    },
    {
        .name = "gemma",
        .pieces = {"'<start_of_turn>'+role+'\\n'+(first_user_prefixifloop.firstelse'')",
                   "{%setfirst_user_prefix=messages[0].content+'\\n\\n'%}", "{{message.content|trim}}"},
        .without = {MORE},
        .bos = "<bos>",
        .system = {"", "\n\n"},
        GEMMA_TURNS,
        .rules = KVT_CHAT_TAKES_TURNS | KVT_CHAT_SYSTEM_FIRST | KVT_CHAT_SYSTEM_IN_USER | KVT_CHAT_TRIM,
    },
    {
        .name = "gemma2",
        .pieces = {"'<start_of_turn>'+role+'\\n'+message.content|trim+'<end_of_turn>\\n'", "System role not supported"},
        .without = {MORE},
        .bos = "<bos>",
        GEMMA_TURNS,
        .rules = KVT_CHAT_TAKES_TURNS | KVT_CHAT_NO_SYSTEM | KVT_CHAT_TRIM,
    },
    {
        .name = "phi3",
        .pieces = {"'<|user|>\\n'+message.content+'<|end|>\\n'", "'<|assistant|>\\n'+message.content+'<|end|>\\n'",
                   "'<|system|>\\n'+message.content+'<|end|>\\n'"},
        .without = {MORE, "messages[-1]"},
        PHI3_TURNS,
        .rules = KVT_CHAT_SYSTEM_IF_ANY,
    },
    {
        .name = "phi3-small",
        .pieces = {"{{'<|'+message.role+'|>\\n'+message.content+'<|end|>\\n'}}"},
        .without = {MORE, "messages[-1]"},
        .bos = "<s>",
        PHI3_TURNS,
    },
    {
        .name = "phi3-first",
        .pieces = {"'<|user|>\\n'+message.content+'<|end|>\\n<|assistant|>\\n'", "{{message.content+'<|end|>\\n'}}"},
        .without = {MORE, "system"},
        .bos = "<s>",
        .user = {"<|user|>\n", "<|end|>\n<|assistant|>\n"},
        .assistant = {"", "<|end|>\n"},
        .reply = "",
        .rules = KVT_CHAT_NO_SYSTEM,
    },
    {
        .name = "deepseek",
        .pieces = {"{{'User: '+message.content+'\\n\\n'}}", "{{'Assistant: '+message.content+eos_token}}",
                   "{{message.content+'\\n\\n'}}"},
        .without = {MORE},
        .bos = DEEPSEEK_BOS,
        .system = {"", "\n\n"},
        .user = {"User: ", "\n\n"},
        .assistant = {"Assistant: ", DEEPSEEK_EOS},
        .reply = "Assistant:",
    },
    {
        .name = "deepseek-coder",
        .pieces = {"{{'### Instruction:\\n'+message.content+'\\n'}}",
                   "{{'### Response:\\n'+message.content+'\\n<|EOT|>\\n'}}", "{{'### Response:'}}"},
        .without = {MORE},
        .bos = DEEPSEEK_BOS,
        .system = {"", ""},
        .user = {"### Instruction:\n", "\n"},
        .assistant = {"### Response:\n", "\n<|EOT|>\n"},
        .reply = "### Response:\n",
        .default_open = "{%ifnotns.found%}{{'",
        .default_end = "'",
        .rules = KVT_CHAT_DEFAULT_IF_NONE,
    },
    {
        .name = "deepseek-r1",
        .pieces = {"{{'<｜User｜>'+message.content}}", "{{'<｜Assistant｜>'+content+'<｜end▁of▁sentence｜>'}}",
                   "{%setcontent=content.split('</think>')[-1]%}"},
        .without = {MORE, "ifnotenable_thinking"},
        .bos = DEEPSEEK_BOS,
        DEEPSEEK_V3_TURNS,
        .thinking_reply = "'<｜Assistant｜><think>\\n'",
        .rules = KVT_CHAT_SYSTEM_FIRST | KVT_CHAT_FORGET_THOUGHT,
    },
    {
        .name = "deepseek-v3",
        .pieces = {"{{'<｜User｜>'+message.content}}", "{{'<｜Assistant｜>'+message.content+'<｜end▁of▁sentence｜>'}}"},
        .without = {MORE, "think"},
        .bos = DEEPSEEK_BOS,
        DEEPSEEK_V3_TURNS,
        .rules = KVT_CHAT_SYSTEM_FIRST,
    },
    {
        /* TinyLlama's. */
        .name = "zephyr",
        .pieces = {"{{'<|user|>\\n'+message.content+eos_token}}", "{{'<|system|>\\n'+message.content+eos_token}}",
                   "{{'<|assistant|>\\n'+message.content+eos_token}}"},
        .without = {MORE},
        .system = {"<|system|>\n", "</s>\n"},
        .user = {"<|user|>\n", "</s>\n"},
        .assistant = {"<|assistant|>\n", "</s>\n"},
        .reply = "<|assistant|>\n",
    },
};

const struct kvt_chat_template *kvt_chat_row(int i) {
    return i >= 0 && (size_t)i < KVT_ARRAY_LEN(rows) ? &rows[i] : NULL;
}

const char *kvt_chat_names(void) {
    return "chatml, qwen3, llama2, llama3, llama3.1, mistral, mistral-v0.1, mistral-v1, mistral-v3, mistral-tekken, "
           "mistral-v7, gemma, gemma2, phi3, phi3-small, phi3-first, deepseek, deepseek-coder, deepseek-r1, deepseek-v3, "
           "zephyr";
}
