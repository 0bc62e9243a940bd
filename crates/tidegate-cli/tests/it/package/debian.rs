//! The Debian package.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use super::{Packages, run};

fn dpkg_deb(args: &[&str]) -> String {
    run(Command::new("dpkg-deb").args(args).arg(Packages::get().ending(".deb")))
}

#[test]
fn the_control_files_are_complete() {
    let field = |name: &str| {
        dpkg_deb(&["--field"])
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned))
    };
    assert_eq!(field("Package").as_deref(), Some("tidegate"));
    assert_eq!(field("Version").as_deref(), Some(env!("CARGO_PKG_VERSION")));
    assert!(field("Installed-Size").unwrap().parse::<u64>().unwrap() > 1_000);
    let info = dpkg_deb(&["--info"]);
    for file in ["conffiles", "md5sums", "postinst", "postrm", "prerm"] {
        assert!(info.contains(file), "{file} in {info}");
    }
    for script in ["postinst", "postrm", "prerm"] {
        let folder = tempfile::tempdir().unwrap();
        let deb = Packages::get().ending(".deb");
        run(Command::new("dpkg-deb").arg("-e").arg(deb).arg(folder.path()));
        run(Command::new("sh").arg("-n").arg(folder.path().join(script)));
    }
}

#[test]
fn the_contents_belong_to_root() {
    let contents = dpkg_deb(&["--contents"]);
    for line in contents.lines() {
        assert!(line.contains(" root/root "), "{line}");
    }
    for path in [
        "./etc/tidegate/tidegate.toml",
        "./usr/bin/tidegate",
        "./usr/lib/systemd/system/tidegate.service",
        "./usr/lib/systemd/system/tidegate-http.socket",
        "./usr/lib/sysusers.d/tidegate.conf",
        "./usr/share/bash-completion/completions/tidegate",
        "./usr/share/doc/tidegate/copyright",
        "./usr/share/man/man1/tidegate-serve.1.gz",
    ] {
        assert!(contents.lines().any(|line| line.ends_with(path)), "{path} in {contents}");
    }
}

/// By dpkg, with a database of its own. The scripts are not run: they need a system below the folder.
#[test]
fn the_package_unpacks_below_another_root() {
    let root = tempfile::tempdir().unwrap();
    for name in ["info", "updates"] {
        fs::create_dir_all(root.path().join("var/lib/dpkg").join(name)).unwrap();
    }
    fs::write(root.path().join("var/lib/dpkg/status"), "").unwrap();
    let dpkg = |args: &[&str]| {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", root.path().display())).args(args);
        command.args(["--force-not-root", "--force-depends"]);
        command.arg("--log=/dev/null");
        command
    };
    let deb = Packages::get().ending(".deb");
    run(dpkg(&["--unpack"]).arg(&deb));
    let program = root.path().join("usr/bin/tidegate");
    let version = run(Command::new(&program).arg("--version"));
    assert_eq!(version.trim(), format!("tidegate {}", env!("CARGO_PKG_VERSION")));
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o777, 0o755);
    let config = root.path().join("etc/tidegate/tidegate.toml");
    // Unpacked under this name until it is configured, because it may be changed by then.
    assert!(config.with_extension("toml.dpkg-new").exists() || config.exists());
    run(Command::new(&program).arg("check").arg(config.with_extension("toml.dpkg-new")));
    let listed = run(dpkg(&["--verify"]).arg("tidegate"));
    assert!(!listed.contains("usr/"), "files differ from their checksums: {listed}");
}
