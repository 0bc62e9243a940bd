//! Configuration: files, and changes at run time.

use tidegate_config::{Loader, Overrides, Patch};

use crate::input;

/// A file, in TOML and in YAML. A valid one shows the same settings when it is read again; an invalid
/// one gives an error with a text.
pub(super) fn file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    named("fuzzed.toml", text);
    named("fuzzed.yaml", text);
}

fn named(name: &str, text: &str) {
    let layers = Loader::default().text_layers(name, text);
    let (plan, effective) = (layers.validate(), layers.effective());
    match &plan {
        Ok(plan) => {
            let _ = format!("{plan:?}");
            let again = layers.reload_file().unwrap();
            assert!(again.validate().is_ok(), "a file is valid only the first time");
            assert_eq!(
                again.effective(),
                effective,
                "a file shows different settings the second time"
            );
        }
        Err(error) => assert!(!error.to_string().is_empty(), "an error without a text"),
    }
    assert!(
        plan.is_ok() || layers.validate_strictly().is_err(),
        "the check accepts an invalid file"
    );
    for value in &effective {
        let json: serde_json::Value = serde_json::from_str(&value.value).unwrap();
        let _ = json;
    }
}

/// A change as JSON, or as text below a line `set KEY`.
pub(super) fn patch(bytes: &[u8]) {
    if let Some((line, value)) = input::text_line(bytes)
        && let Some(key) = line.strip_prefix("set ")
    {
        let Ok(value) = std::str::from_utf8(value) else { return };
        return apply(&Patch::default().set(key, value));
    }
    if let Ok(patch) = Patch::from_json(bytes) {
        apply(&patch);
    }
}

/// A change that passes its check gives layers that are either accepted or rejected.
fn apply(patch: &Patch) {
    if let Err(error) = patch.check() {
        assert!(!error.to_string().is_empty(), "an error without a text");
        return;
    }
    let overrides = patch.apply(&Overrides::new());
    for (key, value) in overrides.iter() {
        let _ = tidegate_config::redacted_value(key, value);
    }
    assert_eq!(patch.apply(&overrides), overrides, "applying a change twice gives another result");
    let base = Loader::default().text_layers("fuzzed.toml", "[limits.client]\nrate = \"1/s\"\n");
    let changed = base.with_overrides(overrides);
    let (plan, effective) = (changed.validate(), changed.effective());
    assert_eq!(changed.validate().is_ok(), plan.is_ok());
    assert_eq!(changed.effective(), effective);
}
