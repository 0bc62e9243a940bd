//! `tidegate db`: manages the settings database.

use tidegate_server::Database;

use crate::args::{ConfigLocation, DbAction};
use crate::failure::Failure;
use crate::terminal::{eprint_line, print};

/// Runs a `db` subcommand.
pub(crate) fn db(location: ConfigLocation, action: DbAction) -> Result<(), Failure> {
    let plan = location.layers()?.validate()?;
    let database = Database::from_config(&plan)?.ok_or(Failure::NoDatabase)?;
    match action {
        DbAction::Migrate => migrate(&database),
    }
}

fn migrate(database: &Database) -> Result<(), Failure> {
    let migrated = crate::block_on(database.migrate())??;
    if let Some(backup) = &migrated.backup {
        eprint_line(&format!("backup of the previous database: {}", backup.display()));
    }
    match migrated.from {
        Some(from) if from == migrated.to => print(&format!("already at format {from}")),
        Some(from) => print(&format!("migrated from format {from} to {}", migrated.to)),
        None => print(&format!("created in format {}", migrated.to)),
    }
}
