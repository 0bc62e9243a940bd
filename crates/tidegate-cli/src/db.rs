//! `tidegate db`: manages the settings database.

use std::path::PathBuf;

use serde::Serialize;
use tidegate_server::{Database, MigrationResult};

use crate::args::output::Output;
use crate::args::{ConfigLocation, DbAction};
use crate::failure::Failure;
use crate::terminal::{eprint_line, print, print_json};

/// Runs a `db` subcommand.
pub(crate) fn db(location: ConfigLocation, action: DbAction) -> Result<(), Failure> {
    let plan = location.layers()?.validate()?;
    let database = Database::from_config(&plan)?.ok_or(Failure::NoDatabase)?;
    match action {
        DbAction::Migrate { output } => migrate(&database, output),
    }
}

fn migrate(database: &Database, output: Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Migrated {
        /// The previous format; `null` if the database is new.
        from: Option<u32>,
        to: u32,
        backup: Option<PathBuf>,
    }
    let migrated = crate::block_on(database.migrate())??;
    if output.json {
        let MigrationResult { from, to, backup } = migrated;
        return print_json(&Migrated { from, to, backup });
    }
    if let Some(backup) = &migrated.backup {
        eprint_line(&format!("backup of the previous database: {}", backup.display()));
    }
    match migrated.from {
        Some(from) if from == migrated.to => print(&format!("already at format {from}")),
        Some(from) => print(&format!("migrated from format {from} to {}", migrated.to)),
        None => print(&format!("created in format {}", migrated.to)),
    }
}
