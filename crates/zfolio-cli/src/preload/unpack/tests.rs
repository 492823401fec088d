//! Where the library is written, and where it is not.

use super::*;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

const INSIDE: Inside = Inside {
    bytes: b"a library",
    hash: "0123",
};

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A directory in which nobody else can write.
fn tempdir() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn put(base: &Path) -> Result<PathBuf, String> {
    let place = Place {
        base: base.to_owned(),
        name: "zfolio".to_owned(),
    };
    place.put(&INSIDE, user())
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn it_is_written_once_for_all_to_read() {
    let dir = tempdir();
    let base = dir.path().join(".cache");
    let path = put(&base).unwrap();
    assert_eq!(
        path,
        base.canonicalize()
            .unwrap()
            .join("zfolio/0123/libzfolio_preload.so")
    );
    assert_eq!(fs::read(&path).unwrap(), INSIDE.bytes);
    assert_eq!((mode(&base), mode(&path)), (0o700, 0o644));
    for dir in [path.parent().unwrap(), &base.join("zfolio")] {
        assert_eq!(mode(dir), 0o755);
    }
    let first = fs::metadata(&path).unwrap().ino();
    assert_eq!(put(&base), Ok(path.clone()));
    assert_eq!(fs::metadata(&path).unwrap().ino(), first, "written twice");
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn what_is_not_the_library_is_replaced_and_not_written_to() {
    let dir = tempdir();
    let path = put(dir.path()).unwrap();
    let elsewhere = dir.path().join("elsewhere");
    fs::write(&elsewhere, "a file of the user's").unwrap();
    let damage: [&dyn Fn(); 5] = [
        &|| fs::write(&path, "a librarx").unwrap(),
        &|| fs::write(&path, "").unwrap(),
        &|| symlink(&elsewhere, &path).unwrap(),
        &|| {
            fs::copy(dir.path().join("kept"), &path).unwrap();
            set_mode(&path, 0o666);
        },
        &|| {
            fs::copy(dir.path().join("kept"), &path).unwrap();
            set_mode(&path, 0o600);
        },
    ];
    fs::copy(&path, dir.path().join("kept")).unwrap();
    for (at, damage) in damage.iter().enumerate() {
        fs::remove_file(&path).unwrap();
        damage();
        let before = File::open(&path).unwrap();
        assert_eq!(put(dir.path()), Ok(path.clone()), "{at}");
        assert_eq!(fs::read(&path).unwrap(), INSIDE.bytes, "{at}");
        assert_eq!(mode(&path), 0o644, "{at}");
        // Who has the old one mapped keeps it.
        assert_ne!(
            before.metadata().unwrap().ino(),
            fs::metadata(&path).unwrap().ino()
        );
    }
    assert_eq!(fs::read(&elsewhere).unwrap(), b"a file of the user's");
}

#[test]
fn directories_that_others_may_change_are_refused() {
    let dir = tempdir();
    let ours = dir.path().join("zfolio");
    for mode in [0o777, 0o775, 0o1777] {
        fs::create_dir(&ours).unwrap();
        set_mode(&ours, mode);
        let why = put(dir.path()).unwrap_err();
        assert!(why.contains("can be written to by others"), "{why}");
        fs::remove_dir(&ours).unwrap();
    }
    // A directory above: sticky ones will do, as /tmp is.
    for (mode, refused) in [(0o777, true), (0o775, true), (0o1777, false)] {
        let above = dir.path().join("above");
        let base = above.join("base");
        fs::create_dir_all(&base).unwrap();
        set_mode(&above, mode);
        assert_eq!(put(&base).is_err(), refused, "{mode:o}");
        fs::remove_dir_all(&above).unwrap();
    }
    symlink("/tmp", &ours).unwrap();
    let why = put(dir.path()).unwrap_err();
    assert!(why.contains("is not a directory"), "{why}");
}

#[test]
fn directories_of_another_user_are_refused() {
    let dir = tempdir();
    let base = dir.path().join("home/.cache");
    fs::create_dir_all(&base).unwrap();
    let home = dir.path().join("home");
    if std::os::unix::fs::chown(&home, Some(54_321), None).is_err() {
        return eprintln!("SKIPPED: only root can give a directory to another user");
    }
    let why = put(&base).unwrap_err();
    assert!(why.contains("belongs to another user (54321)"), "{why}");
    std::os::unix::fs::chown(&home, Some(user()), None).unwrap();
    put(&base).unwrap();
    std::os::unix::fs::chown(base.join("zfolio"), Some(54_321), None).unwrap();
    let why = put(&base).unwrap_err();
    assert!(why.contains("zfolio belongs to another user"), "{why}");
}

#[test]
fn other_places_are_refused_with_the_reason() {
    let dir = tempdir();
    let blank = dir.path().join("a b");
    fs::create_dir(&blank).unwrap();
    for (base, words) in [
        (Path::new("relative"), "not an absolute path"),
        (&blank, "LD_PRELOAD"),
        (&dir.path().join("none/none"), "No such file"),
        (Path::new("/proc"), "cannot be made"),
        (Path::new("/dev/null/zfolio"), "Not a directory"),
    ] {
        let why = put(base).unwrap_err();
        let noexec = base == Path::new("/proc") && why == "mounted noexec";
        assert!(why.contains(words) || noexec, "{}: {why}", base.display());
    }
}

#[test]
fn a_failure_names_every_place() {
    let here = Surroundings {
        user: user(),
        variable: |_| Some("relative".into()),
    };
    let far = Inside {
        // (Too long for a name: cannot be made anywhere.)
        hash: Box::leak("0".repeat(300).into_boxed_str()),
        ..INSIDE
    };
    let failure = unpack(&far, &here).unwrap_err();
    assert_eq!(failure.status, Status::Preload);
    let told = failure.to_string();
    for words in [
        "relative: not an absolute path",
        "/tmp: ",
        "/var/tmp: ",
        "TMPDIR",
    ] {
        assert!(told.contains(words), "{told}");
    }
    assert!(!told.contains('\n'));
}

#[test]
fn roots_places_can_be_reached_by_all() {
    let places = |user, variable| -> Vec<String> {
        let here = Surroundings { user, variable };
        let path = |place: Place| place.base.join(place.name).display().to_string();
        here.places().into_iter().map(path).collect()
    };
    let home = |name: &str| (name == "HOME").then(|| "/home/a".into());
    assert_eq!(
        places(1000, home),
        [
            "/home/a/.cache/zfolio",
            "/tmp/zfolio-1000",
            "/var/tmp/zfolio-1000"
        ]
    );
    assert_eq!(
        places(0, home),
        [
            "/var/cache/zfolio",
            "/run/zfolio",
            "/tmp/zfolio-0",
            "/var/tmp/zfolio-0",
            "/home/a/.cache/zfolio"
        ]
    );
    let all = |name: &str| match name {
        "XDG_CACHE_HOME" => Some("/c".into()),
        "XDG_RUNTIME_DIR" => Some("/r".into()),
        "TMPDIR" => Some("/tmp".into()),
        _ => Some("/home/a".into()),
    };
    assert_eq!(
        places(7, all),
        [
            "/c/zfolio",
            "/r/zfolio",
            "/tmp/zfolio-7",
            "/var/tmp/zfolio-7"
        ]
    );
}
