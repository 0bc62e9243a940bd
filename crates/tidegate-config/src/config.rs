//! The validated configuration: all sections, read from the merged layers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::layers::environment::Environment;
use crate::layers::file::state_directory;
use crate::layers::variables::UnknownVariable;
use crate::sections::admin::AdminConfig;
use crate::sections::admission::AdmissionConfig;
use crate::sections::api::ApiConfig;
use crate::sections::database::{self, DatabaseConfig};
use crate::sections::gateway::GatewayConfig;
use crate::sections::keys::{self, KnownKey};
use crate::sections::limits::Limits;
use crate::sections::listen::Listen;
use crate::sections::modules::Modules;
use crate::sections::providers::{self, ProviderConfig};
use crate::sections::proxy::ProxyConfig;
use crate::sections::read_context::ReadContext;
use crate::sections::store::StoreConfig;
use crate::values::fields::{Fields, Path};
use crate::values::setting::{Setting, Source};
use crate::values::value::Value;
use crate::values::value_kind::ValueKind;
use crate::violation::{Rule, Violation};
use crate::warning::Warning;

pub(crate) const KEYS: &[KnownKey] = &[KnownKey::new(
    "state_dir",
    ValueKind::Text,
    |value| directory(value).map(drop),
    "Directory for state files, such as the SQLite database. If unset: tidegate in \
     $XDG_STATE_HOME, else in ~/.local/state, else /var/lib/tidegate.",
)
.at_start(database::WHY_FIXED, |a, b| a.state_dir.value != b.state_dir.value)];

/// The complete, validated configuration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Directory for state files. Default: `$XDG_STATE_HOME/tidegate`, else
    /// `$HOME/.local/state/tidegate`, else `/var/lib/tidegate`.
    pub state_dir: Setting<PathBuf>,
    /// `[listen]`: listener addresses.
    pub listen: Listen,
    /// `[store]`: where buckets are kept.
    pub store: StoreConfig,
    /// `[database]`: where settings changed at run time are kept.
    pub database: DatabaseConfig,
    /// `[admin]`: access to the admin API.
    pub admin: AdminConfig,
    /// `[limits.NAME]`: limits that requests can refer to.
    pub limits: Limits,
    /// `[api]`: options of the HTTP API.
    pub api: ApiConfig,
    /// `[admission]`: three-tier admission.
    pub admission: AdmissionConfig,
    /// `[gateway]`: options for calls to all providers.
    pub gateway: GatewayConfig,
    /// `[providers.NAME]`: LLM providers that the gateway forwards to.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// `[proxy]`: outbound HTTP proxies.
    pub proxy: ProxyConfig,
    /// `[modules.*]`: modules of the library stack.
    pub modules: Modules,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// Environment variables that look like misspelled settings.
    pub unknown_variables: Vec<UnknownVariable>,
    /// Problems that do not prevent the program from starting.
    pub warnings: Vec<Warning>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            state_dir: Setting::default(state_directory(&Environment::default())),
            listen: Listen::default(),
            store: StoreConfig::default(),
            database: DatabaseConfig::default(),
            admin: AdminConfig::default(),
            limits: Limits::default(),
            api: ApiConfig::default(),
            admission: AdmissionConfig::default(),
            gateway: GatewayConfig::default(),
            providers: providers::shipped(),
            proxy: ProxyConfig::default(),
            modules: Modules::default(),
            file: None,
            unknown_variables: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

impl Config {
    /// Reads the merged layers. Violations are added to `violations`, and the settings they concern
    /// keep their defaults.
    pub(crate) fn read(
        tree: &Value<'_>,
        context: &mut ReadContext<'_>,
        violations: &mut Vec<Violation>,
    ) -> Self {
        let state_dir = Setting::default(state_directory(context.environment));
        let mut config = Self { state_dir, ..Self::default() };
        let root = Path::Root;
        let Some(mut top) = Fields::open(tree, root, &keys::below(""), violations) else {
            return config;
        };
        config.state_dir.replace(top.setting("state_dir", directory));
        for entry in top.entries() {
            let (key, violations) = (&*entry.key, top.violations());
            let path = Path::Key(&root, key);
            // Names of limits and providers are chosen by the user.
            let fields = match key {
                "limits" | "providers" => Fields::open_any(&entry.value, path, violations),
                "listen" | "store" | "database" | "admin" | "api" | "admission" | "gateway"
                | "proxy" | "modules" => {
                    Fields::open(&entry.value, path, &keys::below(key), violations)
                }
                _ => None,
            };
            let Some(mut fields) = fields else { continue };
            match key {
                "listen" => config.listen = Listen::read(&mut fields),
                "store" => config.store = StoreConfig::read(&mut fields, context),
                "database" => config.database = DatabaseConfig::read(&mut fields),
                "admin" => config.admin = AdminConfig::read(&mut fields),
                "limits" => config.limits = Limits::read(&mut fields),
                "api" => config.api = ApiConfig::read(&mut fields),
                "admission" => config.admission = AdmissionConfig::read(&mut fields),
                "gateway" => config.gateway = GatewayConfig::read(&mut fields),
                "providers" => config.providers = providers::read(&mut fields, context),
                "proxy" => config.proxy = ProxyConfig::read(&mut fields),
                "modules" => config.modules = Modules::read(&mut fields),
                _ => {}
            }
        }
        config.check_tiers(&mut top);
        config
    }

    /// Rejects limits that cannot serve as admission tiers, if any layer configures admission.
    fn check_tiers(&self, top: &mut Fields<'_, '_>) {
        let (limits, admission) = (top.get("limits"), top.get("admission"));
        let admission_is_set = admission.is_some_and(|it| it.position.source != Source::Default);
        let Some(limits) = limits.filter(|_| admission_is_set) else { return };
        let root = Path::Root;
        let path = Path::Key(&root, "limits");
        // Violations of the table itself have been reported already.
        let mut new_violations = Vec::new();
        let Some(mut fields) = Fields::open_any(limits, path, &mut new_violations) else { return };
        fields.violations().clear();
        for tier in self.admission.unusable_tiers(&self.limits) {
            fields.report(tier, Rule::NotATier);
        }
        top.violations().append(&mut new_violations);
    }

    /// Returns the keys of settings that differ and take effect only after a restart, such as
    /// listeners, store and database.
    #[must_use]
    pub fn needs_restart(&self, other: &Self) -> Vec<&'static str> {
        let differing = keys::known_keys().filter(|key| key.differs_at_start(self, other));
        differing.map(KnownKey::path).collect()
    }
}

fn directory(value: &Value<'_>) -> Result<PathBuf, Rule> {
    let text = value.to_text().ok().filter(|text| !text.is_empty());
    text.map(PathBuf::from).ok_or(Rule::Directory)
}
