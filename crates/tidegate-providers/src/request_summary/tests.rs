//! Summaries of requests of all four API families.

use serde_json::json;

use super::*;

fn summary(dialect: Dialect, path: &str, body: &serde_json::Value) -> RequestSummary {
    crate::tokens::prepare();
    let purpose = PathPurpose::lookup(dialect, path).unwrap();
    RequestSummary::read(&purpose, body.to_string().as_bytes())
}

#[test]
fn fields_of_every_family_are_read() {
    let gemini = json!({
        "contents": [{ "role": "user", "parts": [{ "text": "A river?" }] }],
        "generationConfig": { "maxOutputTokens": 40, "candidateCount": 2 },
    });
    let gemini = summary(Dialect::Gemini, "/v1beta/models/g:streamGenerateContent", &gemini);
    assert_eq!(gemini.model.as_deref(), Some("g"));
    assert_eq!((gemini.max_output, gemini.is_streamed), (Some(80), true));
    let ollama = json!({ "model": "llama3", "prompt": "hi", "options": { "num_predict": 7 } });
    let ollama = summary(Dialect::Ollama, "/api/generate", &ollama);
    assert_eq!((ollama.max_output, ollama.is_streamed), (Some(7), true), "streamed by default");
    let anthropic = json!({
        "model": "claude", "max_tokens": 9, "system": "be brief",
        "metadata": { "user_id": "u-1", "model": "none", "stream": true }, "messages": [],
    });
    let anthropic = summary(Dialect::Anthropic, "/v1/messages", &anthropic);
    assert_eq!((anthropic.max_output, anthropic.is_streamed), (Some(9), false));
    assert_eq!(anthropic.user.as_deref(), Some("u-1"));
    assert_eq!(anthropic.model.as_deref(), Some("claude"));
    let embeddings = json!({ "model": "e", "input": ["one", "two"], "max_tokens": 5 });
    let embeddings = summary(Dialect::OpenAi, "/v1/embeddings", &embeddings);
    assert_eq!(embeddings.max_output, Some(0), "embeddings have no output tokens");
    assert!((2..=14).contains(&embeddings.input_tokens), "{}", embeddings.input_tokens);
}

#[test]
fn images_are_not_counted_as_text() {
    let words = json!([{ "type": "text", "text": "What is this?" }]);
    let mut seen = json!([{ "type": "text", "text": "What is this?" }]);
    let image = "QUJD".repeat(10_000);
    let parts = [
        json!({ "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{image}") } }),
        json!({ "type": "image", "source": { "type": "base64", "data": image } }),
        json!({ "inlineData": { "mimeType": "image/png", "data": image } }),
        json!({ "type": "input_image", "url": format!("data:image/png;base64,{image}") }),
    ];
    seen.as_array_mut().unwrap().extend(parts);
    let count = |content: &serde_json::Value| {
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": content }] });
        summary(Dialect::OpenAi, "/v1/chat/completions", &body).input_tokens
    };
    let (without, with) = (count(&words), count(&seen));
    let images = 4 * 1_000;
    assert!((images..images + 40).contains(&(with - without)), "{with} and {without}");
    let body = json!({ "model": "m", "messages": [{ "content": "", "images": [image, image] }] });
    let local = summary(Dialect::Ollama, "/api/chat", &body).input_tokens;
    assert!((2_000..2_020).contains(&local), "{local}");
}

#[test]
fn prompt_of_token_ids_counts_each() {
    for input in [json!(vec![7; 1_000]), json!([vec![7; 500], vec![7; 500]])] {
        let body = json!({ "model": "e", "input": input });
        let tokens = summary(Dialect::OpenAi, "/v1/embeddings", &body).input_tokens;
        assert!((1_000..=1_010).contains(&tokens), "{tokens}");
    }
}

#[test]
fn text_that_looks_like_a_file_is_counted() {
    let words = "the tide comes in and the tide goes out, ".repeat(100);
    let count = |content: serde_json::Value| {
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": content }] });
        summary(Dialect::Anthropic, "/v1/messages", &body).input_tokens
    };
    let plain = count(json!(words));
    assert!(plain > 900, "{plain}");
    let source = json!({ "type": "text", "media_type": "text/plain", "data": words });
    for (what, content) in [
        ("a document", json!([{ "type": "document", "source": source }])),
        ("a result", json!([{ "type": "tool_use", "input": { "data": { "found": [words] } } }])),
        ("a colon", json!(format!("data: {words}"))),
        ("a comma", json!(format!("data:image/png;base64,{words}"))),
    ] {
        let counted = count(content);
        assert!((plain..plain + 40).contains(&counted), "{what}: {counted} and {plain}");
    }
}

#[test]
fn long_prompt_is_extrapolated_from_its_beginning() {
    let words = "the tide comes in and the tide goes out, ".repeat(1_000);
    let count = |times: usize| {
        let body = json!({ "prompt": words.repeat(times) });
        summary(Dialect::OpenAi, "/v1/completions", &body).input_tokens
    };
    let (one, twenty) = (count(1), count(20));
    assert!(twenty.abs_diff(one * 20) < one / 4, "{one} and {twenty}");
}

#[test]
fn leading_spaces_do_not_hide_the_rest() {
    let words = "the tide comes in and the tide goes out, ".repeat(10_000);
    let count = |prompt: String| {
        let body = json!({ "prompt": prompt });
        summary(Dialect::OpenAi, "/v1/completions", &body).input_tokens
    };
    let (plain, padded) = (count(words.clone()), count(" ".repeat(64 * 1_024) + &words));
    assert!(padded * 2 > plain, "{padded} and {plain}");
}

#[test]
fn unreadable_fields_are_unknown_and_no_error() {
    let purpose = PathPurpose::lookup(Dialect::OpenAi, "/v1/chat/completions").unwrap();
    let odd = json!({
        "model": 7, "stream": "yes", "max_tokens": -1, "n": null, "metadata": [1, { "a": 2 }],
        "user": { "name": "x" }, "messages": { "role": null, "content": true },
    });
    let odd = RequestSummary::read(&purpose, odd.to_string().as_bytes());
    assert_eq!((odd.model, odd.max_output, odd.user), (None, None, None));
    assert!(!RequestSummary::read(&purpose, b"").is_streamed);
    let cut =
        RequestSummary::read(&purpose, br#"{"model":"gpt-4o","messages":[{"content":"half of"#);
    assert_eq!(cut.model.as_deref(), Some("gpt-4o"), "fields before the end are kept");
    let deep = format!("{{\"model\":\"m\",\"messages\":{}", "[".repeat(100_000));
    assert_eq!(RequestSummary::read(&purpose, deep.as_bytes()).model.as_deref(), Some("m"));
}

#[test]
fn is_complete_only_if_read_to_the_end() {
    let purpose = PathPurpose::lookup(Dialect::OpenAi, "/v1/chat/completions").unwrap();
    let is_complete = |body: &[u8]| RequestSummary::read(&purpose, body).is_complete;
    assert!(is_complete(b" {\"model\":\"m\"}\n") && is_complete(b"{}"));
    for body in [&b""[..], b"{", b"[]", b"x{}", b"{}x", b"{\"model\":\"\xff\"}", b"\xef\xbb\xbf{}"]
    {
        assert!(!is_complete(body), "{body:?}");
    }
}

#[test]
fn all_text_counts_on_an_unknown_path() {
    let other = PathPurpose::other(Dialect::OpenAi, "/generate");
    let words = "the tide comes in and the tide goes out, ".repeat(10);
    for body in [
        json!({ "inputs": words, "model": "m" }),
        json!({ "text_1": [words], "model": "m" }),
        json!({ "instances": [{ "prompt": words }], "model": "m" }),
    ] {
        let read = RequestSummary::read(&other, body.to_string().as_bytes());
        assert!(read.input_tokens > 80, "{body}: {}", read.input_tokens);
        assert_eq!((read.model.as_deref(), read.max_output), (Some("m"), None));
    }
    let pull = RequestSummary::read(&other, br#"{"model":"m","stream":true}"#);
    assert_eq!((pull.input_tokens, pull.max_output), (0, Some(0)));
}
