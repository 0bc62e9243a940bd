//! The validated configuration: all sections, read from the merged layers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::fault::{Fault, Rule};
use crate::layers::environment::Environment;
use crate::layers::file::state_directory;
use crate::layers::variables::UnknownVariable;
use crate::sections::admin::AdminPlan;
use crate::sections::admission::AdmissionPlan;
use crate::sections::api::ApiPlan;
use crate::sections::database::{self, DatabasePlan};
use crate::sections::gateway::GatewayPlan;
use crate::sections::keys::{self, KnownKey};
use crate::sections::limits::Limits;
use crate::sections::listen::Listen;
use crate::sections::modules::Modules;
use crate::sections::providers::{self, ProviderPlan};
use crate::sections::proxy::ProxyPlan;
use crate::sections::read_context::ReadContext;
use crate::sections::store::StorePlan;
use crate::values::fields::{Fields, Path};
use crate::values::setting::{Setting, Source};
use crate::values::value::Value;
use crate::values::value_kind::ValueKind;
use crate::warning::Warning;

pub(crate) const KEYS: &[KnownKey] = &[KnownKey::new(
    "state_dir",
    ValueKind::Text,
    |value| directory(value).map(drop),
    "Directory for state files, such as the SQLite database. If unset: tidegate in \
     $XDG_STATE_HOME, else in ~/.local/state, else /var/lib/tidegate.",
)
.fixed(database::WHY_FIXED)];

/// The complete, validated configuration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// Directory for state files. Default: `$XDG_STATE_HOME/tidegate`, else
    /// `$HOME/.local/state/tidegate`, else `/var/lib/tidegate`.
    pub state_dir: Setting<PathBuf>,
    /// `[listen]`: listener addresses.
    pub listen: Listen,
    /// `[store]`: where buckets are kept.
    pub store: StorePlan,
    /// `[database]`: where settings changed at run time are kept.
    pub database: DatabasePlan,
    /// `[admin]`: access to the admin API.
    pub admin: AdminPlan,
    /// `[limits.NAME]`: limits that requests can refer to.
    pub limits: Limits,
    /// `[api]`: options of the HTTP API.
    pub api: ApiPlan,
    /// `[admission]`: three-tier admission.
    pub admission: AdmissionPlan,
    /// `[gateway]`: options for calls to all providers.
    pub gateway: GatewayPlan,
    /// `[providers.NAME]`: LLM providers that the gateway forwards to.
    pub providers: BTreeMap<String, ProviderPlan>,
    /// `[proxy]`: outbound HTTP proxies.
    pub proxy: ProxyPlan,
    /// `[modules.*]`: modules of the library stack.
    pub modules: Modules,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// Environment variables that look like misspelled settings.
    pub unknown_variables: Vec<UnknownVariable>,
    /// Problems that do not prevent the program from starting.
    pub warnings: Vec<Warning>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            state_dir: Setting::default(state_directory(&Environment::default())),
            listen: Listen::default(),
            store: StorePlan::default(),
            database: DatabasePlan::default(),
            admin: AdminPlan::default(),
            limits: Limits::default(),
            api: ApiPlan::default(),
            admission: AdmissionPlan::default(),
            gateway: GatewayPlan::default(),
            providers: providers::shipped(),
            proxy: ProxyPlan::default(),
            modules: Modules::default(),
            file: None,
            unknown_variables: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

impl Plan {
    /// Reads the merged layers. Violations are added to `faults`, and the settings they concern
    /// keep their defaults.
    pub(crate) fn read(
        tree: &Value<'_>,
        context: &mut ReadContext<'_>,
        faults: &mut Vec<Fault>,
    ) -> Self {
        let state_dir = Setting::default(state_directory(context.environment));
        let mut plan = Self { state_dir, ..Self::default() };
        let root = Path::Root;
        let Some(mut top) = Fields::open(tree, root, &keys::below(""), faults) else { return plan };
        plan.state_dir.replace(top.setting("state_dir", directory));
        for entry in top.entries() {
            let (key, faults) = (&*entry.key, top.faults());
            let path = Path::Key(&root, key);
            // Names of limits and providers are chosen by the user.
            let fields = match key {
                "limits" | "providers" => Fields::any(&entry.value, path, faults),
                "listen" | "store" | "database" | "admin" | "api" | "admission" | "gateway"
                | "proxy" | "modules" => {
                    Fields::open(&entry.value, path, &keys::below(key), faults)
                }
                _ => None,
            };
            let Some(mut fields) = fields else { continue };
            match key {
                "listen" => plan.listen = Listen::read(&mut fields),
                "store" => plan.store = StorePlan::read(&mut fields),
                "database" => plan.database = DatabasePlan::read(&mut fields),
                "admin" => plan.admin = AdminPlan::read(&mut fields),
                "limits" => plan.limits = Limits::read(&mut fields),
                "api" => plan.api = ApiPlan::read(&mut fields),
                "admission" => plan.admission = AdmissionPlan::read(&mut fields),
                "gateway" => plan.gateway = GatewayPlan::read(&mut fields),
                "providers" => plan.providers = providers::read(&mut fields, context),
                "proxy" => plan.proxy = ProxyPlan::read(&mut fields),
                "modules" => plan.modules = Modules::read(&mut fields),
                _ => {}
            }
        }
        plan.check_tiers(&mut top);
        plan
    }

    /// Rejects limits that cannot serve as admission tiers, if any layer configures admission.
    fn check_tiers(&self, top: &mut Fields<'_, '_>) {
        let (limits, admission) = (top.get("limits"), top.get("admission"));
        let admission_is_set = admission.is_some_and(|it| it.place.source != Source::Default);
        let Some(limits) = limits.filter(|_| admission_is_set) else { return };
        let root = Path::Root;
        let path = Path::Key(&root, "limits");
        // Violations of the table itself have been reported already.
        let mut new_faults = Vec::new();
        let Some(mut fields) = Fields::any(limits, path, &mut new_faults) else { return };
        fields.faults().clear();
        for tier in self.admission.unusable_tiers(&self.limits) {
            fields.refuse(tier, Rule::NotATier);
        }
        top.faults().append(&mut new_faults);
    }

    /// Returns the keys of settings that differ and take effect only after a restart, such as
    /// listeners, store and database.
    #[must_use]
    pub fn needs_restart(&self, other: &Self) -> Vec<&'static str> {
        let differing = NEEDS_RESTART.iter().filter(|(_, differs)| differs(self, other));
        differing.map(|(key, _)| *key).collect()
    }
}

/// Compares one setting of two plans.
type Differs = fn(&Plan, &Plan) -> bool;

/// Settings that take effect only after a restart.
pub(crate) const NEEDS_RESTART: &[(&str, Differs)] = &[
    ("state_dir", |a, b| a.state_dir.value != b.state_dir.value),
    ("listen.http", |a, b| a.listen.http.value != b.listen.http.value),
    ("listen.admin", |a, b| a.listen.admin.value != b.listen.admin.value),
    ("listen.grpc", |a, b| a.listen.grpc.value != b.listen.grpc.value),
    ("listen.allowed_hosts", |a, b| a.listen.allowed_hosts.value != b.listen.allowed_hosts.value),
    ("listen.trusted_proxies", |a, b| {
        a.listen.trusted_proxies.value != b.listen.trusted_proxies.value
    }),
    ("store.url", |a, b| a.store.url.value != b.store.url.value),
    ("store.max_memory", |a, b| a.store.max_memory.value != b.store.max_memory.value),
    ("store.overflow", |a, b| a.store.overflow.value != b.store.overflow.value),
    ("store.on_failure", |a, b| a.store.on_failure.value != b.store.on_failure.value),
    ("store.expected_nodes", |a, b| a.store.expected_nodes.value != b.store.expected_nodes.value),
    ("store.snapshot", |a, b| a.store.snapshot.value != b.store.snapshot.value),
    ("database.url", |a, b| a.database.url.value != b.database.url.value),
    ("database.auto_migrate", |a, b| {
        a.database.auto_migrate.value != b.database.auto_migrate.value
    }),
];

fn directory(value: &Value<'_>) -> Result<PathBuf, Rule> {
    let text = value.to_text().ok().filter(|text| !text.is_empty());
    text.map(PathBuf::from).ok_or(Rule::Directory)
}
