//! Responses in one piece, as providers send them.

use tidegate_providers::response::{DecodeError, decode};
use tidegate_providers::{Dialect, Reply, StopReason, ToolCall, Usage};

fn read(dialect: Dialect, body: &str) -> Reply {
    decode(dialect, body.as_bytes()).unwrap()
}

fn call(id: &str, signature: Option<&str>) -> ToolCall {
    ToolCall {
        id: id.into(),
        name: "length".into(),
        arguments: r#"{"river":"Elbe"}"#.into(),
        signature: signature.map(Into::into),
    }
}

#[test]
fn openai() {
    let reply = read(
        Dialect::OpenAi,
        r#"{"choices":[{"index":0,"finish_reason":"tool_calls","message":{"content":"Hm.",
            "reasoning_content":"Think.","tool_calls":[{"id":"call_1","type":"function",
            "function":{"name":"length","arguments":"{\"river\":\"Elbe\"}"}}]}}],
            "usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,
            "prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":2},
            "completion_tokens_details":{"reasoning_tokens":3}}}"#,
    );
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("Hm.", "Think."));
    assert_eq!(reply.calls, [call("call_1", None)]);
    assert_eq!(reply.stop, Some(StopReason::Tools));
    let usage = Usage {
        input: 10,
        output: 5,
        cache_read: 4,
        cache_write: 2,
        reasoning: 3,
        ..Usage::default()
    };
    assert_eq!(reply.usage, Some(usage));
    assert_eq!(usage.total(), 15);
}

#[test]
fn compatible_providers_use_other_members() {
    let mistral = read(
        Dialect::Mistral,
        r#"{"choices":[{"finish_reason":"model_length","message":{"content":[
            {"type":"thinking","thinking":[{"type":"text","text":"Think."}]},
            {"type":"text","text":"Hm."}]}}]}"#,
    );
    assert_eq!((mistral.text.as_str(), mistral.reasoning.as_str()), ("Hm.", "Think."));
    assert_eq!((mistral.stop, mistral.usage), (Some(StopReason::Length), None));
    let deepseek = read(
        Dialect::DeepSeek,
        "\n\n\n{\"choices\":[{\"message\":{\"content\":\"Hm.\"}}],
            \"usage\":{\"prompt_tokens\":9,\"prompt_cache_hit_tokens\":8}}",
    );
    assert_eq!(deepseek.usage.unwrap().cache_read, 8);
    let refused = read(
        Dialect::OpenAi,
        r#"{"choices":[{"message":{"content":null,"refusal":"No."},"finish_reason":"content_filter"}]}"#,
    );
    assert_eq!((refused.text.as_str(), refused.stop), ("No.", Some(StopReason::Filtered)));
}

#[test]
fn anthropic() {
    let reply = read(
        Dialect::Anthropic,
        r#"{"type":"message","content":[{"type":"thinking","thinking":"Think."},
            {"type":"text","text":"Hm."},
            {"type":"tool_use","id":"toolu_1","name":"length","input":{"river":"Elbe"}},
            {"type":"tool_use","id":"toolu_2","name":"now","input":{}}],
            "stop_reason":"tool_use","usage":{"input_tokens":1,"cache_creation_input_tokens":20,
            "cache_read_input_tokens":300,"output_tokens":7}}"#,
    );
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("Hm.", "Think."));
    assert_eq!(reply.calls[0], call("toolu_1", None));
    assert_eq!((reply.calls[1].name.as_str(), reply.calls[1].arguments.as_str()), ("now", "{}"));
    assert_eq!(reply.stop, Some(StopReason::Tools));
    let usage =
        Usage { input: 321, output: 7, cache_read: 300, cache_write: 20, ..Usage::default() };
    assert_eq!(reply.usage, Some(usage));
}

#[test]
fn gemini() {
    let reply = read(
        Dialect::Gemini,
        r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Think.","thought":true},
            {"text":"Hm."},{"functionCall":{"id":"f1","name":"length","args":{"river":"Elbe"}},
            "thoughtSignature":"signed"},{"functionCall":{"name":"now"}}]},"finishReason":"STOP"}],
            "usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":4,"thoughtsTokenCount":6,
            "toolUsePromptTokenCount":2,"cachedContentTokenCount":3,"totalTokenCount":22}}"#,
    );
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("Hm.", "Think."));
    assert_eq!(reply.calls[0], call("f1", Some("signed")));
    assert_eq!((&*reply.calls[1].id, &*reply.calls[1].arguments), ("gemini-call-1", "{}"));
    assert_eq!(reply.stop, Some(StopReason::Tools));
    let usage = Usage { input: 12, output: 10, cache_read: 3, reasoning: 6, ..Usage::default() };
    assert_eq!(reply.usage, Some(usage));
    assert_eq!(usage.total(), 22);
    let blocked = read(Dialect::Gemini, r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#);
    assert_eq!((blocked.text.as_str(), blocked.stop), ("", Some(StopReason::Filtered)));
}

#[test]
fn ollama() {
    let reply = read(
        Dialect::Ollama,
        r#"{"message":{"role":"assistant","content":"Hm.","thinking":"Think.","tool_calls":[
            {"function":{"name":"length","arguments":{"river":"Elbe"}}}]},"done":true,
            "done_reason":"stop","prompt_eval_count":10,"prompt_eval_cached_count":4,
            "eval_count":5}"#,
    );
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("Hm.", "Think."));
    assert_eq!(reply.calls, [call("ollama-call-0", None)]);
    assert_eq!(reply.stop, Some(StopReason::Tools));
    let usage = Usage { input: 10, output: 5, cache_read: 4, ..Usage::default() };
    assert_eq!(reply.usage, Some(usage));
}

#[test]
fn invalid_response_is_an_error_that_quotes_nothing() {
    let missing = |dialect| match decode(dialect, br#"{"secret":"words"}"#) {
        Err(DecodeError::Missing(name)) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(missing(Dialect::OpenAi), "choices");
    assert_eq!(missing(Dialect::Anthropic), "content");
    assert_eq!(missing(Dialect::Gemini), "finishReason");
    assert_eq!(missing(Dialect::Ollama), "done");
    let nothing = decode(Dialect::OpenAi, br#"{"choices":[]}"#);
    assert!(matches!(nothing, Err(DecodeError::Missing("choices"))), "{nothing:?}");
    let failed = decode(Dialect::OpenRouter, br#"{"error":{"code":502,"message":"secret"}}"#);
    let Err(error @ DecodeError::ProviderError(body)) = &failed else { panic!("{failed:?}") };
    assert_eq!(body["error"]["code"], 502);
    assert!(!format!("{error:?} {error}").contains("secret"));
}
