//! `[admission]`: three tiers at the door of a service that asks over HTTP.
//!
//! The tiers of clients and organizations are the limits `client` and `organization`.

use std::num::NonZeroU32;
use std::str::FromStr;

use tidegate::Policy;
use tidegate::admission::Rules;

use crate::fault::Rule;
use crate::sections::keys::KnownKey;
use crate::sections::limits::Limits;
use crate::values::fields::Fields;
use crate::values::setting::Setting;
use crate::values::value::Value;
use crate::values::value_kind::{COUNT, ValueKind};

pub(crate) const KEYS: &[KnownKey] = &[
    KnownKey::new(
        "admission.enabled",
        ValueKind::Switch,
        |value| value.to_switch().map(drop),
        "Whether anybody is rejected at all.",
    ),
    KnownKey::new(
        "admission.backpressure_threshold",
        COUNT,
        |value| threshold(value).map(drop),
        "Above how many pending requests everybody is rejected.",
    ),
    KnownKey::new(
        "admission.jitter_percent",
        ValueKind::Whole(0, 100),
        |value| percent(value).map(drop),
        "By up to how many per cent hints are lengthened at random.",
    ),
    KnownKey::new(
        "admission.mode",
        ValueKind::Words(MODES),
        |value| mode(value).map(drop),
        "Whether rejections count, or are only told.",
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
        "What a request without a client is charged to in the client tier: nothing, or a bucket of \
         its connection.",
    ),
];

/// The limits that are tiers.
const TIERS: [&str; 2] = ["client", "organization"];

const MODES: &[&str] = &["enforce", "shadow"];

const MISSING_CLIENT: &[&str] = &["skip", "connection"];

/// Admission.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdmissionPlan {
    /// Whether anybody is rejected at all. Default `true`: who asks to admit wants an answer.
    pub enabled: Setting<bool>,
    /// Above how many pending requests everybody is rejected. Default 100.
    pub backpressure_threshold: Setting<NonZeroU32>,
    /// By up to how many per cent hints are lengthened at random. Default 0.
    pub jitter_percent: Setting<u8>,
    /// Whether rejections are only told (`shadow`). Default no (`enforce`).
    pub is_shadow: Setting<bool>,
    /// Organizations that are never rejected. Default none.
    pub allow_organizations: Setting<Vec<String>>,
    /// Clients that are never rejected, with their organizations. Default none.
    pub allow_clients: Setting<Vec<AllowedClient>>,
    /// Whether a request without a client is charged to its connection. Default no (`skip`).
    pub limits_connections: Setting<bool>,
}

/// A client of the allow-list. Ids of clients are good within their organization only, so it has
/// both.
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
    /// The organization that it belongs to.
    pub organization: String,
    /// Its id there.
    pub client: String,
}

impl FromStr for AllowedClient {
    type Err = Rule;

    /// With two slashes it would not be known where the client begins.
    fn from_str(text: &str) -> Result<Self, Rule> {
        let (organization, client) = text.split_once('/').ok_or(Rule::AllowedClient)?;
        let whole = !organization.is_empty() && !client.is_empty() && !client.contains('/');
        let (organization, client) = (organization.to_owned(), client.to_owned());
        whole.then_some(Self { organization, client }).ok_or(Rule::AllowedClient)
    }
}

impl Default for AdmissionPlan {
    fn default() -> Self {
        Self {
            enabled: Setting::default(true),
            backpressure_threshold: Setting::default(NonZeroU32::MIN.saturating_add(99)),
            jitter_percent: Setting::default(0),
            is_shadow: Setting::default(false),
            allow_organizations: Setting::default(Vec::new()),
            allow_clients: Setting::default(Vec::new()),
            limits_connections: Setting::default(false),
        }
    }
}

impl AdmissionPlan {
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
        admission.limits_connections.replace(fields.setting("missing_client", missing_client));
        admission
    }

    /// The limits that have the name of a tier and are no token buckets. With a word about
    /// admission they are refused; without one they are just no tiers.
    pub fn unusable_tiers<'l>(
        &self,
        limits: &'l Limits,
    ) -> impl Iterator<Item = &'static str> + use<'l> {
        TIERS.into_iter().filter(|tier| {
            let policy = limits.by_name.get(*tier).map(|plan| plan.limit.policy());
            policy.is_some_and(|policy| !matches!(policy, Policy::Bucket(_)))
        })
    }

    /// The rules, with the policies of the tiers that there are. A limit of another kind than a
    /// token bucket is no tier.
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
            .limit_connections(self.limits_connections.value)
            .shadow(self.is_shadow.value);
        let organizations = self.allow_organizations.value.iter();
        let rules = organizations.fold(rules, |rules, name| rules.allow_organization(name));
        let clients = self.allow_clients.value.iter();
        clients.fold(rules, |rules, it| rules.allow_client(&it.organization, &it.client))
    }
}

fn threshold(value: &Value<'_>) -> Result<NonZeroU32, Rule> {
    const MOST: u64 = u32::MAX as u64;
    let threshold = value.to_whole_between(1, MOST)?;
    let threshold = u32::try_from(threshold).ok().and_then(NonZeroU32::new);
    threshold.ok_or(Rule::NotBetween { least: 1, most: MOST })
}

/// A part of a hundred.
pub(crate) fn percent(value: &Value<'_>) -> Result<u8, Rule> {
    const MOST: u8 = 100;
    let percent = value.to_whole_between(0, MOST.into())?;
    Ok(u8::try_from(percent).unwrap_or(MOST))
}

/// Whether it is `shadow`.
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

/// Whether it is `connection`.
fn missing_client(value: &Value<'_>) -> Result<bool, Rule> {
    match value.to_text() {
        Ok("skip") => Ok(false),
        Ok("connection") => Ok(true),
        _ => Err(Rule::NotOneOf(MISSING_CLIENT)),
    }
}
