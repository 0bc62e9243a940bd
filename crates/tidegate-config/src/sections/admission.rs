//! `[admission]`: three-tier admission for services that ask over HTTP.
//!
//! The client and organization tiers use the limits named `client` and `organization`.

use std::num::NonZeroU32;
use std::str::FromStr;

use tidegate::Policy;
use tidegate::admission::Rules;

use crate::sections::keys::KnownKey;
use crate::sections::limits::Limits;
use crate::values::fields::Fields;
use crate::values::setting::Setting;
use crate::values::value::Value;
use crate::values::value_kind::{COUNT, ValueKind};
use crate::violation::Rule;

pub(crate) const KEYS: &[KnownKey] = &[
    KnownKey::new(
        "admission.enabled",
        ValueKind::Switch,
        |value| value.to_switch().map(drop),
        "Whether admission rejects requests. If false, every request is admitted.",
    ),
    KnownKey::new(
        "admission.backpressure_threshold",
        COUNT,
        |value| threshold(value).map(drop),
        "Number of pending requests above which every request is rejected.",
    ),
    KnownKey::new(
        "admission.jitter_percent",
        ValueKind::Whole(0, 100),
        |value| percent(value).map(drop),
        "Maximum random extension of retry hints, in percent.",
    ),
    KnownKey::new(
        "admission.mode",
        ValueKind::Words(MODES),
        |value| mode(value).map(drop),
        "Whether rejections are enforced, or only reported (shadow).",
    ),
    KnownKey::new(
        "admission.allow_organizations",
        ValueKind::Texts,
        |value| value.to_strings().map(drop),
        "Organizations that are never rejected.",
    ),
    KnownKey::new(
        "admission.allow_clients",
        ValueKind::Texts,
        |value| clients(value).map(drop),
        "Clients that are never rejected, each as organization/client.",
    ),
    KnownKey::new(
        "admission.missing_client",
        ValueKind::Words(MISSING_CLIENT),
        |value| missing_client(value).map(drop),
        "What the client tier does with a request without a client: skip it, or charge a bucket of \
         its connection.",
    ),
];

/// Names of the limits that serve as tiers.
const TIERS: [&str; 2] = ["client", "organization"];

const MODES: &[&str] = &["enforce", "shadow"];

const MISSING_CLIENT: &[&str] = &["skip", "connection"];

/// Settings of `[admission]`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdmissionConfig {
    /// Whether admission rejects requests. Default: `true`.
    pub enabled: Setting<bool>,
    /// Number of pending requests above which every request is rejected. Default: 100.
    pub backpressure_threshold: Setting<NonZeroU32>,
    /// Maximum random extension of retry hints, in percent. Default: 0.
    pub jitter_percent: Setting<u8>,
    /// Whether rejections are only reported (`shadow`). Default: `false` (`enforce`).
    pub is_shadow: Setting<bool>,
    /// Organizations that are never rejected. Default: none.
    pub allow_organizations: Setting<Vec<String>>,
    /// Clients that are never rejected. Default: none.
    pub allow_clients: Setting<Vec<AllowedClient>>,
    /// Whether a request without a client is charged to its connection. Default: `false` (`skip`).
    pub charges_connections: Setting<bool>,
}

/// An entry of the client allow-list. It includes the organization, because client ids are unique
/// only within one.
///
/// ```
/// use tidegate_config::AllowedClient;
/// let client: AllowedClient = "acme/nightly-export".parse()?;
/// assert_eq!((client.organization.as_str(), client.client.as_str()), ("acme", "nightly-export"));
/// assert!("nightly-export".parse::<AllowedClient>().is_err());
/// # Ok::<(), tidegate_config::Rule>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllowedClient {
    /// The client's organization.
    pub organization: String,
    /// The client id.
    pub client: String,
}

impl FromStr for AllowedClient {
    type Err = Rule;

    /// Rejects a second slash, since it would be ambiguous where the client id begins.
    fn from_str(text: &str) -> Result<Self, Rule> {
        let (organization, client) = text.split_once('/').ok_or(Rule::AllowedClient)?;
        let is_complete = !organization.is_empty() && !client.is_empty() && !client.contains('/');
        let (organization, client) = (organization.to_owned(), client.to_owned());
        is_complete.then_some(Self { organization, client }).ok_or(Rule::AllowedClient)
    }
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            enabled: Setting::default(true),
            backpressure_threshold: Setting::default(NonZeroU32::MIN.saturating_add(99)),
            jitter_percent: Setting::default(0),
            is_shadow: Setting::default(false),
            allow_organizations: Setting::default(Vec::new()),
            allow_clients: Setting::default(Vec::new()),
            charges_connections: Setting::default(false),
        }
    }
}

impl AdmissionConfig {
    pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut admission = Self::default();
        admission.enabled.replace(fields.setting("enabled", Value::to_switch));
        let threshold = fields.setting("backpressure_threshold", threshold);
        admission.backpressure_threshold.replace(threshold);
        admission.jitter_percent.replace(fields.setting("jitter_percent", percent));
        admission.is_shadow.replace(fields.setting("mode", mode));
        admission
            .allow_organizations
            .replace(fields.setting("allow_organizations", Value::to_strings));
        admission.allow_clients.replace(fields.setting("allow_clients", clients));
        admission.charges_connections.replace(fields.setting("missing_client", missing_client));
        admission
    }

    /// Returns the limits that are named like a tier but are not token buckets.
    ///
    /// They are an error if any layer configures admission, and otherwise only not used as tiers.
    pub fn unusable_tiers<'l>(
        &self,
        limits: &'l Limits,
    ) -> impl Iterator<Item = &'static str> + use<'l> {
        TIERS.into_iter().filter(|tier| {
            let policy = limits.by_name.get(*tier).map(|config| config.limit.policy());
            policy.is_some_and(|policy| !matches!(policy, Policy::Bucket(_)))
        })
    }

    /// Builds the admission rules from these settings and the limits of the tiers. A limit that is
    /// not a token bucket is not used as a tier.
    pub fn rules(&self, limits: &Limits) -> Rules {
        let tier = |name| {
            let policy = *limits.by_name.get(name)?.limit.policy();
            matches!(policy, Policy::Bucket(_)).then_some(policy)
        };
        let [client, organization] = TIERS.map(tier);
        let rules = Rules::none()
            .backpressure(self.backpressure_threshold.value.get())
            .client(client)
            .organization(organization)
            .jitter_percent(self.jitter_percent.value)
            .limit_connections(self.charges_connections.value)
            .shadow(self.is_shadow.value);
        let organizations = self.allow_organizations.value.iter();
        let rules = organizations.fold(rules, |rules, name| rules.allow_organization(name));
        let clients = self.allow_clients.value.iter();
        clients.fold(rules, |rules, it| rules.allow_client(&it.organization, &it.client))
    }
}

fn threshold(value: &Value<'_>) -> Result<NonZeroU32, Rule> {
    const MAX: u64 = u32::MAX as u64;
    let threshold = value.to_whole_between(1, MAX)?;
    let threshold = u32::try_from(threshold).ok().and_then(NonZeroU32::new);
    threshold.ok_or(Rule::NotBetween { min: 1, max: MAX })
}

/// Parses a percentage from 0 to 100.
pub(crate) fn percent(value: &Value<'_>) -> Result<u8, Rule> {
    const MAX: u8 = 100;
    let percent = value.to_whole_between(0, MAX.into())?;
    Ok(u8::try_from(percent).unwrap_or(MAX))
}

/// Returns whether the mode is `shadow`.
fn mode(value: &Value<'_>) -> Result<bool, Rule> {
    match value.to_text() {
        Ok("enforce") => Ok(false),
        Ok("shadow") => Ok(true),
        _ => Err(Rule::NotOneOf(MODES)),
    }
}

fn clients(value: &Value<'_>) -> Result<Vec<AllowedClient>, Rule> {
    let texts = value.to_texts().map_err(|_| Rule::AllowedClient)?;
    texts.into_iter().map(str::parse).collect()
}

/// Returns whether the value is `connection`.
fn missing_client(value: &Value<'_>) -> Result<bool, Rule> {
    match value.to_text() {
        Ok("skip") => Ok(false),
        Ok("connection") => Ok(true),
        _ => Err(Rule::NotOneOf(MISSING_CLIENT)),
    }
}
