//! The model that a form names.

use std::borrow::Cow;

use crate::request::address;

/// The longest name of a model.
const LONGEST_NAME: usize = 256;

/// The value of the field `model` in the beginning of a form: one in parts, or one that is written like
/// a query.
pub(crate) fn model(begin: &[u8]) -> Option<Cow<'_, str>> {
    in_parts(begin).map(Cow::Borrowed).or_else(|| in_query(begin).map(Cow::Owned))
}

fn in_parts(begin: &[u8]) -> Option<&str> {
    const NAME: &[u8] = b"name=\"model\"";
    let at = begin.windows(NAME.len()).position(|window| window == NAME)?;
    let rest = begin.get(at + NAME.len()..)?;
    let value = rest.windows(4).position(|window| window == b"\r\n\r\n")?;
    let value = rest.get(value + 4..)?;
    let end = value.windows(2).position(|window| window == b"\r\n")?;
    named(std::str::from_utf8(value.get(..end)?).ok()?)
}

fn in_query(begin: &[u8]) -> Option<String> {
    let mut members = begin.split(|byte| *byte == b'&');
    let value = members.find_map(|member| member.strip_prefix(b"model="))?;
    let value = value.get(..value.len().min(3 * LONGEST_NAME))?;
    let value = String::from_utf8(address::decoded(value).into_owned()).ok()?;
    named(&value.replace('+', " ")).map(str::to_owned)
}

fn named(model: &str) -> Option<&str> {
    let model = model.trim();
    (!model.is_empty() && model.len() <= LONGEST_NAME).then_some(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_names_its_model() {
        let form = b"--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nRIFF\r\n--x\r\n\
            Content-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--x--";
        assert_eq!(model(form).as_deref(), Some("whisper-1"));
        assert_eq!(model(&form[..100]), None);
        assert_eq!(model(b""), None);
        assert_eq!(model(b"prompt=a+b&model=org%2Fname").as_deref(), Some("org/name"));
        assert_eq!(model(b"models=x&model="), None);
    }
}
