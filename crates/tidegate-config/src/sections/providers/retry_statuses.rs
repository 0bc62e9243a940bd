//! HTTP statuses after which a call to a provider is retried.

use tidegate_providers::classify::NEVER_RETRIED;

use crate::values::value::{Node, Value};
use crate::violation::Rule;

pub(crate) const MIN_STATUS: u16 = 400;
pub(crate) const MAX_STATUS: u16 = 599;

/// Parses a list of statuses, or comma-separated text as in an environment variable.
pub(crate) fn statuses(value: &Value<'_>) -> Result<Vec<u16>, Rule> {
    let mut statuses = Vec::new();
    let mut add = |status: Option<u16>| {
        let status =
            status.filter(|it| (MIN_STATUS..=MAX_STATUS).contains(it)).ok_or(Rule::RetryStatus)?;
        if NEVER_RETRIED.contains(&status) {
            return Err(Rule::NeverRetried(status));
        }
        if !statuses.contains(&status) {
            statuses.push(status);
        }
        Ok(())
    };
    match &value.node {
        Node::Text(_) => {
            let texts = value.to_texts()?;
            texts.into_iter().try_for_each(|text| add(text.parse().ok()))?;
        }
        _ => {
            let number = |item: &Value<'_>| {
                item.to_whole(0).ok().and_then(|status| u16::try_from(status).ok())
            };
            value.to_list()?.iter().try_for_each(|item| add(number(item)))?;
        }
    }
    Ok(statuses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_retryable_error_statuses_are_accepted() {
        assert_eq!(statuses(&Value::text("429, 500,429")).unwrap(), [429, 500]);
        assert_eq!(statuses(&Value::text("")).unwrap(), [0_u16; 0]);
        for text in ["200", "399", "600", "99999", "x", "4 29", "-1"] {
            assert!(matches!(statuses(&Value::text(text)), Err(Rule::RetryStatus)), "{text}");
        }
        for text in ["400", "500, 401", "403", "404", "413"] {
            assert!(matches!(statuses(&Value::text(text)), Err(Rule::NeverRetried(_))), "{text}");
        }
    }
}
