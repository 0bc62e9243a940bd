//! The plan, and the layers it is made of: flags over environment over file over defaults.

use std::path::{Path as FilePath, PathBuf};

use crate::admission::{ADMISSION_KEYS, AdmissionPlan};
use crate::environment::{UnknownVariable, near_misses};
use crate::fault::{ConfigError, Fault, Located, Origin, Rule};
use crate::fields::{Fields, Path};
use crate::file::{self, File};
use crate::limits::Limits;
use crate::listen::{LISTEN_KEYS, Listen};
use crate::modules::{MODULE_KEYS, Modules};
use crate::setting::{Key, Source};
use crate::store::{STORE_KEYS, StorePlan};
use crate::toml_value;
use crate::value::{Entry, Node, Number, Value};

/// Everything the program needs to know, valid.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Plan {
    /// The doors.
    pub listen: Listen,
    /// The store.
    pub store: StorePlan,
    /// The limits that requests may name.
    pub limits: Limits,
    /// Admission in three tiers.
    pub admission: AdmissionPlan,
    /// What calls to LLM providers go through.
    pub modules: Modules,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// Variables of the environment that look like a setting and are none.
    pub unknown_variables: Vec<UnknownVariable>,
}

/// Collects the layers and makes a [`Plan`] of them.
///
/// ```
/// use tidegate_config::{Key, Loader, Source};
/// let plan = Loader::default().flag(Key::ListenHttp, "127.0.0.1:0").text("in-line", "")?;
/// assert_eq!(plan.listen.http.source, Source::Flag);
/// assert_eq!(plan.listen.grpc.source, Source::Default);
/// # Ok::<(), tidegate_config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a plan is made by `load`"]
pub struct Loader {
    file: Option<PathBuf>,
    working: PathBuf,
    environment: Vec<(String, String)>,
    flags: Vec<(Key, String)>,
}

impl Loader {
    /// Reads this file, which must be there, instead of looking for one.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Looks for `tidegate.toml` here first. Default: the working directory of the process.
    pub fn working_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.working = path.into();
        self
    }

    /// Adds variables of the environment. Names that are not ours are passed over.
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment.extend(variables);
        self
    }

    /// Adds a flag of the command line.
    pub fn flag(mut self, key: Key, value: impl Into<String>) -> Self {
        self.flags.push((key, value.into()));
        self
    }

    /// The plan, from the file that was named or else the first one found.
    ///
    /// # Errors
    /// When the file cannot be read, or with everything that is wrong in any layer.
    pub fn load(self) -> Result<Plan, ConfigError> {
        let file = match &self.file {
            Some(path) => Some(File::read(path)?),
            None => File::first(&file::candidates(&self.working, &self.environment))?,
        };
        self.resolve(file.as_ref())
    }

    /// The plan, from a text in place of a file; `name` stands for the file in errors.
    ///
    /// # Errors
    /// With everything that is wrong in any layer.
    pub fn text(self, name: impl AsRef<FilePath>, text: &str) -> Result<Plan, ConfigError> {
        let file = File { path: name.as_ref().to_owned(), text: text.to_owned() };
        self.resolve(Some(&file))
    }

    fn resolve(self, file: Option<&File>) -> Result<Plan, ConfigError> {
        let mut plan = Plan {
            file: file.map(|file| file.path.clone()),
            unknown_variables: near_misses(&self.environment),
            ..Plan::default()
        };
        let mut located = Vec::new();
        if let Some(file) = file {
            let mut faults = Vec::new();
            let table = toml_value::parse(&file.text, &mut faults);
            plan.layer(&table, Source::File, &mut faults);
            faults.sort_by_key(|fault| fault.span.as_ref().map(|span| span.start));
            located.extend(faults.into_iter().map(|fault| file.locate(fault)));
        }
        for key in Key::ALL {
            let variable = self.environment.iter().find(|(name, _)| name == key.variable());
            if let Some((_, text)) = variable {
                let origin = Origin::Environment(key.variable());
                located.extend(plan.single(key, text, Source::Environment, &origin));
            }
        }
        for (key, text) in &self.flags {
            let origin = Origin::Flag(key.flag());
            located.extend(plan.single(*key, text, Source::Flag, &origin));
        }
        if located.is_empty() && plan.admission.is_set() {
            // The section and the limits may come from different places.
            located.extend(plan.refused_tiers(file));
        }
        if located.is_empty() { Ok(plan) } else { Err(ConfigError::Invalid(located)) }
    }
}

impl Plan {
    /// Lays the sections of a table over what is there.
    fn layer(&mut self, table: &Value<'_>, source: Source, faults: &mut Vec<Fault>) {
        const SECTIONS: &[&str] = &["listen", "store", "limits", "admission", "modules"];
        let root = Path::Root;
        let Some(top) = Fields::open(table, root, SECTIONS, faults) else { return };
        let section = |key| top.get(key).map(|section| (section, Path::Key(&root, key)));
        let [listen, store, limits, admission, modules] =
            ["listen", "store", "limits", "admission", "modules"].map(section);
        if let Some(mut fields) =
            listen.and_then(|(section, path)| Fields::open(section, path, LISTEN_KEYS, faults))
        {
            self.listen.layer(&mut fields, source);
        }
        if let Some(mut fields) =
            store.and_then(|(section, path)| Fields::open(section, path, STORE_KEYS, faults))
        {
            self.store.layer(&mut fields, source);
        }
        if let Some(mut fields) =
            limits.and_then(|(section, path)| Fields::any(section, path, faults))
        {
            self.limits.layer(&mut fields, source);
            if admission.is_some() {
                for tier in self.admission.unusable_tiers(&self.limits) {
                    fields.refuse(tier, Rule::NotATier);
                }
            }
        }
        if let Some(mut fields) = admission
            .and_then(|(section, path)| Fields::open(section, path, ADMISSION_KEYS, faults))
        {
            self.admission.layer(&mut fields, source);
        }
        if let Some(mut fields) =
            modules.and_then(|(section, path)| Fields::open(section, path, MODULE_KEYS, faults))
        {
            self.modules.layer(&mut fields, source);
        }
    }

    /// The limits that cannot be the tiers that they would be. Limits come from a file; those that
    /// are there by default are what tiers take.
    fn refused_tiers(&self, file: Option<&File>) -> Vec<Located> {
        let Some(file) = file else { return Vec::new() };
        let refused = |tier| {
            let key = format!("limits.{tier}");
            file.locate(Fault { key, value: None, rule: Rule::NotATier, span: None })
        };
        self.admission.unusable_tiers(&self.limits).map(refused).collect()
    }

    /// Lays one setting over what is there, as a table that holds nothing else.
    fn single(&mut self, key: Key, text: &str, source: Source, origin: &Origin) -> Vec<Located> {
        // The environment and the command line have no numbers of their own.
        let value = match text.parse() {
            Ok(whole) => Node::Number(Number::Whole(whole)).into(),
            Err(_) => Value::text(text),
        };
        let (section, name) = key.in_file();
        let table = section.rsplit('.').fold(nested(name, value), |table, key| nested(key, table));
        let mut faults = Vec::new();
        self.layer(&table, source, &mut faults);
        let located = |fault| Located { origin: origin.clone(), fault };
        faults.into_iter().map(located).collect()
    }
}

fn nested<'a>(key: &'a str, value: Value<'a>) -> Value<'a> {
    Node::Table(vec![Entry { key: key.into(), span: None, value }]).into()
}
