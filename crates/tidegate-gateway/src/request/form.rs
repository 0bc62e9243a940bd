//! Finds the model in a form.

use std::borrow::Cow;

use crate::request::uri_path;

/// Maximum length of a model name.
const MAX_NAME_LEN: usize = 256;

/// Returns the field `model` from the prefix of a multipart or URL-encoded form.
pub(crate) fn model(prefix: &[u8]) -> Option<Cow<'_, str>> {
    model_in_multipart(prefix)
        .map(Cow::Borrowed)
        .or_else(|| model_in_urlencoded(prefix).map(Cow::Owned))
}

fn model_in_multipart(prefix: &[u8]) -> Option<&str> {
    const NAME: &[u8] = b"name=\"model\"";
    let at = prefix.windows(NAME.len()).position(|window| window == NAME)?;
    let rest = prefix.get(at + NAME.len()..)?;
    let value = rest.windows(4).position(|window| window == b"\r\n\r\n")?;
    let value = rest.get(value + 4..)?;
    let end = value.windows(2).position(|window| window == b"\r\n")?;
    valid_name(std::str::from_utf8(value.get(..end)?).ok()?)
}

fn model_in_urlencoded(prefix: &[u8]) -> Option<String> {
    let mut params = prefix.split(|byte| *byte == b'&');
    let value = params.find_map(|param| param.strip_prefix(b"model="))?;
    let value = value.get(..value.len().min(3 * MAX_NAME_LEN))?;
    let value = String::from_utf8(uri_path::percent_decoded(value).into_owned()).ok()?;
    valid_name(&value.replace('+', " ")).map(str::to_owned)
}

fn valid_name(model: &str) -> Option<&str> {
    let model = model.trim();
    (!model.is_empty() && model.len() <= MAX_NAME_LEN).then_some(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_is_found_in_forms() {
        let form = b"--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nRIFF\r\n--x\r\n\
            Content-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--x--";
        assert_eq!(model(form).as_deref(), Some("whisper-1"));
        assert_eq!(model(&form[..100]), None);
        assert_eq!(model(b""), None);
        assert_eq!(model(b"prompt=a+b&model=org%2Fname").as_deref(), Some("org/name"));
        assert_eq!(model(b"models=x&model="), None);
    }
}
