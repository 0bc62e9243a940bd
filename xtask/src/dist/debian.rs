//! The Debian package. `deploy/debian` has its control files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::Release;
use super::contents::{copy, files};
use crate::process;
use crate::project;

/// Files of the package, from the contents of the archive.
const FILES: [(&str, &str); 7] = [
    ("bin/tidegate", "usr/bin/tidegate"),
    ("tidegate.toml", "etc/tidegate/tidegate.toml"),
    ("systemd/tidegate.service", "usr/lib/systemd/system/tidegate.service"),
    ("systemd/tidegate-http.socket", "usr/lib/systemd/system/tidegate-http.socket"),
    ("systemd/tidegate-admin.socket", "usr/lib/systemd/system/tidegate-admin.socket"),
    ("systemd/tidegate-grpc.socket", "usr/lib/systemd/system/tidegate-grpc.socket"),
    ("systemd/tidegate.sysusers", "usr/lib/sysusers.d/tidegate.conf"),
];

/// Documents, which go to `usr/share/doc/tidegate`. All but the first are long, and compressed.
const DOCUMENTS: [&str; 3] = ["README.md", "LICENSES-THIRD-PARTY.txt", "sbom.cdx.json"];

/// Packs the contents of the archive and returns the path of the package.
pub(super) fn pack(contents: &Path, root: &Path, out: &Path, release: &Release) -> Result<PathBuf> {
    for (from, to) in FILES {
        copy(&contents.join(from), &root.join(to))?;
    }
    let documents = root.join("usr/share/doc/tidegate");
    for name in DOCUMENTS {
        copy(&contents.join(name), &documents.join(name))?;
        if !name.ends_with(".md") {
            compress(&documents.join(name))?;
        }
    }
    copy(&project::root().join("deploy/debian/copyright"), &documents.join("copyright"))?;
    let changelog = documents.join("changelog.gz");
    let text = format!(
        "tidegate ({}) unstable; urgency=medium\n\n  * See CHANGELOG.md in the repository.\n\n \
         -- The Tidegate developers <tidegate@localhost>  {}\n",
        release.version,
        mail_date(release.epoch)?
    );
    fs::write(changelog.with_extension(""), text)?;
    compress(&changelog.with_extension(""))?;
    let share = contents.join("share");
    for file in files(&share)? {
        let to = root.join("usr/share").join(file.strip_prefix(&share)?);
        copy(&file, &to)?;
        if to.extension().is_some_and(|ending| ending == "1") {
            compress(&to)?;
        }
    }
    write_control(root, release)?;
    set_modes(root)?;
    let architecture = architecture()?;
    let path = out.join(format!("tidegate_{}_{architecture}.deb", release.version));
    let mut command = Command::new("dpkg-deb");
    command.args(["--build", "--root-owner-group"]);
    command.args(if release.is_test { ["-Zgzip", "-z1"] } else { ["-Zxz", "-z6"] });
    command.arg(root).arg(&path).env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    command.stdout(std::process::Stdio::null());
    process::run(command)?;
    Ok(path)
}

/// Writes `DEBIAN`: the control file, checksums, the list of configuration files, and scripts.
fn write_control(root: &Path, release: &Release) -> Result<()> {
    let control = root.join("DEBIAN");
    fs::create_dir_all(&control)?;
    let sources = project::root().join("deploy/debian");
    let installed = files(root)?.iter().try_fold(0, |sum, file| {
        Ok::<u64, anyhow::Error>(sum + fs::metadata(file)?.len().div_ceil(1_024))
    })?;
    let text = fs::read_to_string(sources.join("control"))?;
    let text = text
        .replace("@VERSION@", &release.version)
        .replace("@ARCHITECTURE@", &architecture()?)
        .replace("@INSTALLED_SIZE@", &installed.to_string());
    let all = files(root)?;
    let mut sums = Command::new("md5sum");
    for file in all.iter().filter(|file| !file.starts_with(root.join("etc"))) {
        sums.arg(file.strip_prefix(root)?);
    }
    sums.current_dir(root);
    fs::write(control.join("md5sums"), process::read(sums)?)?;
    fs::write(control.join("control"), text)?;
    for name in ["conffiles", "postinst", "prerm", "postrm"] {
        copy(&sources.join(name), &control.join(name))?;
    }
    Ok(())
}

/// Sets permissions regardless of the umask, and the time of directories is dpkg's concern.
fn set_modes(root: &Path) -> Result<()> {
    for file in files(root)? {
        let is_program = file.parent().is_some_and(|folder| folder.ends_with("usr/bin"));
        let is_script = file.parent().is_some_and(|folder| folder.ends_with("DEBIAN"))
            && fs::read(&file)?.starts_with(b"#!");
        let mode = if is_program || is_script { 0o755 } else { 0o644 };
        fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
        let mut folder = file.parent();
        while let Some(path) = folder.filter(|path| path.starts_with(root)) {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
            folder = path.parent();
        }
    }
    Ok(())
}

/// Checks the package with Debian's linter; a warning fails too.
pub(super) fn lint(package: &Path) -> Result<()> {
    let mut command = Command::new("lintian");
    command.args(["--fail-on", "error,warning", "--suppress-tags"]);
    command.arg(SUPPRESSED.join(",")).arg(package);
    process::run(command).context("lintian rejects the Debian package")
}

/// What the linter expects of packages in Debian's own archive, and a mail address, which the
/// project does not have.
const SUPPRESSED: [&str; 3] =
    ["bogus-mail-host", "bogus-mail-host-in-debian-changelog", "initial-upload-closes-no-bugs"];

/// Compresses a file reproducibly, as Debian's policy wants documents.
fn compress(file: &Path) -> Result<()> {
    let mut command = Command::new("gzip");
    command.args(["--no-name", "-9"]).arg(file);
    process::run(command)
}

/// Debian's name of this architecture.
fn architecture() -> Result<String> {
    let mut command = Command::new("dpkg");
    command.arg("--print-architecture");
    Ok(process::read(command)?.trim().to_owned())
}

/// Formats a time as in mails.
fn mail_date(epoch: u64) -> Result<String> {
    let mut command = Command::new("date");
    command.args(["--utc", "--rfc-email", "--date"]).arg(format!("@{epoch}")).env("LC_ALL", "C");
    let date = process::read(command)?;
    match date.trim() {
        "" => bail!("date prints nothing"),
        date => Ok(date.to_owned()),
    }
}
