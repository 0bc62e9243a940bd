//! Streams as providers send them, with tool calls, reasoning and usage.

use tidegate_providers::{Dialect, Reply, StopReason, ToolCall, Usage};

/// A stream and the reply that it decodes to.
pub(super) struct Transcript {
    pub(super) dialect: Dialect,
    pub(super) stream: String,
    pub(super) reply: Reply,
}

/// One stream of each family.
pub(super) fn all() -> Vec<Transcript> {
    vec![openai(), anthropic(), gemini(), ollama()]
}

fn reply(id: &str, signature: Option<&str>, usage: Usage) -> Reply {
    let call = ToolCall {
        id: id.into(),
        name: "length".into(),
        arguments: r#"{"river":"Spree ∿"}"#.into(),
        signature: signature.map(Into::into),
    };
    let mut reply = Reply::default();
    reply.text = "Let me see.".into();
    reply.reasoning = "Hm, hm.".into();
    reply.calls = vec![call];
    reply.stop = Some(StopReason::Tools);
    reply.usage = Some(usage);
    reply
}

/// With a byte order mark, comments, every kind of line end, data over two lines, and a repeated
/// name.
fn openai() -> Transcript {
    let stream = concat!(
        "\u{feff}: waiting\r\n\r\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":null}\r\n\r\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"Hm, \"}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning\":\"hm.\"}}]}\r\r",
        "id: 7\nevent: chunk\ndata: {\"choices\":[{\"index\":0,\n",
        "data: \"delta\":{\"content\":\"Let me \"}}]}\n\n",
        ": keep-alive\n\n",
        "data:{\"choices\":[{\"index\":1,\"delta\":{\"content\":\"Another choice\"}},{\"index\":0,\"delta\":{\"content\":\"see.\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"length\",\"arguments\":\"\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_1\",\"function\":{\"name\":\"length\",\"arguments\":\"{\\\"river\\\":\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\"Spree ∿\\\"}\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}],\"usage\":null}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":40,\"completion_tokens\":20,\"total_tokens\":60,",
        "\"prompt_tokens_details\":{\"cached_tokens\":8},\"completion_tokens_details\":{\"reasoning_tokens\":5}}}\n\n",
        "data: [DONE]\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"too late\"}}]}\n\n",
    );
    let usage = Usage { input: 40, output: 20, cache_read: 8, reasoning: 5, ..Usage::default() };
    let reply = reply("call_1", None, usage);
    Transcript { dialect: Dialect::OpenAi, stream: stream.to_owned(), reply }
}

fn anthropic() -> Transcript {
    let events = [
        r#"{"type":"message_start","message":{"content":[],"usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":30,"output_tokens":1}}}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm, hm."}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"x"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Let me "}}"#,
        r#"{"type":"something_new","index":1}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"see."}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"length","input":{}}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"river\":\"Spree"}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":" ∿\"}"}}"#,
        r#"{"type":"content_block_stop","index":2}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":15}}"#,
        r#"{"type":"message_delta","delta":{},"usage":{"input_tokens":11,"output_tokens":25}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let stream = events.map(|data| format!("event: name\ndata: {data}\n\n")).concat();
    let usage =
        Usage { input: 61, output: 25, cache_read: 30, cache_write: 20, ..Usage::default() };
    Transcript { dialect: Dialect::Anthropic, stream, reply: reply("toolu_1", None, usage) }
}

/// The last event has no empty line after it.
fn gemini() -> Transcript {
    let stream = concat!(
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hm, hm.\",\"thought\":true}]},\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":30,\"thoughtsTokenCount\":4}}\r\n\r\n",
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Let me \"},{\"text\":\"see.\"}]}}]}\r\n\r\n",
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"length\",\"args\":{\"river\":\"Spree ∿\"}},\"thoughtSignature\":\"signed\"}]},\"finishReason\":\"STOP\"}],",
        "\"usageMetadata\":{\"promptTokenCount\":30,\"toolUsePromptTokenCount\":3,\"cachedContentTokenCount\":9,\"candidatesTokenCount\":12,\"thoughtsTokenCount\":6,\"totalTokenCount\":51}}",
    );
    let usage = Usage { input: 33, output: 18, cache_read: 9, reasoning: 6, ..Usage::default() };
    let reply = reply("gemini-call-0", Some("signed"), usage);
    Transcript { dialect: Dialect::Gemini, stream: stream.to_owned(), reply }
}

fn ollama() -> Transcript {
    let stream = concat!(
        "{\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"Hm, hm.\"},\"done\":false}\n",
        "\n",
        "{\"message\":{\"content\":\"Let me \"},\"done\":false}\n",
        "{\"message\":{\"content\":\"see.\"},\"done\":false}\n",
        "{\"message\":{\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"length\",\"arguments\":{\"river\":\"Spree ∿\"}}}]},\"done\":false}\n",
        "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":26,\"prompt_eval_cached_count\":2,\"eval_count\":14}\n",
    );
    let usage = Usage { input: 26, output: 14, cache_read: 2, ..Usage::default() };
    let reply = reply("ollama-call-0", None, usage);
    Transcript { dialect: Dialect::Ollama, stream: stream.to_owned(), reply }
}
