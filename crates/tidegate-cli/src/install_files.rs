//! `tidegate install-files`: writes man pages and shell completions, made from the command line's
//! own definition. Packages contain them.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Args;
use crate::failure::Failure;

/// Shells with their folders for completions below `share`.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Fish, "fish/vendor_completions.d"),
    (Shell::Zsh, "zsh/vendor-completions"),
];

/// Writes the files below a folder, in the layout of `/usr/share`.
pub(crate) fn install_files(folder: &Path) -> Result<(), Failure> {
    write(folder).map_err(|error| Failure::InstallFiles(folder.to_path_buf(), error))
}

fn write(folder: &Path) -> io::Result<()> {
    let pages = folder.join("man/man1");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(Args::command(), &pages)?;
    for (shell, name) in SHELLS {
        let folder = folder.join(name);
        fs::create_dir_all(&folder)?;
        let path = clap_complete::generate_to(shell, &mut Args::command(), "tidegate", &folder)?;
        if shell == Shell::Bash {
            // bash-completion looks for the name of the command.
            fs::rename(path, folder.join("tidegate"))?;
        }
    }
    Ok(())
}
