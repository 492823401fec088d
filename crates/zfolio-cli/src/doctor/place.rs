//! Where this runs: on a host, in a container, in a job. What is typed there, and how a way of serving
//! faults that is refused can be had there.

use std::path::Path;
use zfolio_runtime::segment::faults;

/// A kind of place, by its signs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Kubernetes,
    Docker,
    Podman,
    /// What its variable `container` says.
    OtherContainer(String),
    Slurm,
    Host,
}

impl Place {
    pub(super) fn here() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::of(variable, |path| Path::new(path).exists())
    }

    /// By variables and files. A container's signs come first: a job may be in one.
    fn of(variable: impl Fn(&str) -> Option<String>, exists: impl Fn(&str) -> bool) -> Self {
        if variable("KUBERNETES_SERVICE_HOST").is_some() {
            return Self::Kubernetes;
        }
        // (Podman's before Docker's: it makes its own anew, and may run over a root that has the other.)
        let named = variable("container");
        if exists("/run/.containerenv") || named.as_deref() == Some("podman") {
            return Self::Podman;
        }
        if exists("/.dockerenv") {
            return Self::Docker;
        }
        match named {
            Some(kind) => Self::OtherContainer(kind),
            None if variable("SLURM_JOB_ID").is_some() => Self::Slurm,
            None => Self::Host,
        }
    }

    /// What kind of place it is.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Kubernetes => "Kubernetes pod".into(),
            Self::Docker => "Docker container".into(),
            Self::Podman => "Podman container".into(),
            Self::OtherContainer(kind) => format!("container ({kind})"),
            Self::Slurm => "Slurm job".into(),
            Self::Host => "host: no sign of a container or a job".into(),
        }
    }

    /// What has to be done here to have a way that was refused.
    pub(super) fn grant(&self, way: u32) -> &'static str {
        let messages = way == faults::MESSAGE;
        match (self, messages) {
            (Self::Docker, true) => {
                "docker run --cap-add SYS_PTRACE --security-opt seccomp=unconfined ..."
            }
            (Self::Podman, true) => {
                "sudo podman run --cap-add SYS_PTRACE --security-opt seccomp=unconfined ..."
            }
            (Self::Kubernetes, true) => {
                "securityContext: {capabilities: {add: [SYS_PTRACE]}, seccompProfile: {type: \
                 Unconfined}} of the container, which is root"
            }
            (Self::OtherContainer(_), true) => {
                "CAP_SYS_PTRACE for the container, and no filter of userfaultfd"
            }
            (Self::Slurm, true) => "nothing that a job can ask for: its user is not root",
            (Self::Host, true) => "sudo zfolio run -- CMD",
            (Self::Docker, false) => {
                "zfolio doctor --seccomp-profile default.json >zfolio.json on the host, then docker \
                 run --security-opt seccomp=zfolio.json ..."
            }
            (Self::Podman, false) => {
                "zfolio doctor --seccomp-profile >zfolio.json on the host, then podman run \
                 --security-opt seccomp=zfolio.json ..."
            }
            (Self::Kubernetes, false) => {
                "zfolio doctor --seccomp-profile default.json >/var/lib/kubelet/seccomp/zfolio.json \
                 on the node, then securityContext: {seccompProfile: {type: Localhost, \
                 localhostProfile: zfolio.json}}"
            }
            (Self::OtherContainer(_) | Self::Slurm | Self::Host, false) => {
                "what its row above says mends it"
            }
        }
    }

    /// The command to type next where programs can be managed by `way`: inside a limit of memory or
    /// not.
    pub(super) fn next(&self, way: &str, limited: bool) -> String {
        let before = if *self == Self::Slurm { "srun " } else { "" };
        let high = match (limited, way) {
            // It finds that by itself.
            (true, _) => "",
            (false, "in-thread" | "message") => "--slowdown 5% ",
            (false, _) => "--high 50% ",
        };
        format!("{before}zfolio run {high}-- CMD")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)], files: &[&str]) -> Place {
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Place::of(variable, |path| files.contains(&path))
    }

    #[test]
    fn a_place_is_known_by_its_signs() {
        let kubernetes = [("KUBERNETES_SERVICE_HOST", "10.0.0.1")];
        let slurm = [("SLURM_JOB_ID", "17")];
        assert_eq!(of(&[], &[]), Place::Host);
        assert_eq!(of(&kubernetes, &["/.dockerenv"]), Place::Kubernetes);
        assert_eq!(of(&slurm, &["/.dockerenv"]), Place::Docker);
        let both = ["/.dockerenv", "/run/.containerenv"];
        assert_eq!(of(&[], &both), Place::Podman);
        assert_eq!(of(&[("container", "podman")], &[]), Place::Podman);
        let lxc = Place::OtherContainer("lxc".into());
        assert_eq!(of(&[("container", "lxc")], &[]), lxc);
        assert_eq!(of(&slurm, &[]), Place::Slurm);
    }

    #[test]
    fn each_place_has_a_command_and_a_grant_of_its_own() {
        for (place, messages, user) in [
            (Place::Docker, "docker run --cap-add", "docker run --sec"),
            (Place::Podman, "podman run --cap-add", "podman run --sec"),
            (Place::Kubernetes, "SYS_PTRACE", "localhostProfile"),
            (Place::Slurm, "nothing", "its row"),
            (Place::Host, "sudo", "its row"),
        ] {
            assert!(place.grant(faults::MESSAGE).contains(messages), "{place:?}");
            for way in [faults::IN_THREAD, faults::GUARD] {
                let told = place.grant(way);
                assert!(told.contains(user), "{place:?}: {told}");
            }
        }
        let next = |place: Place, way, limited| place.next(way, limited);
        assert_eq!(next(Place::Docker, "guard", true), "zfolio run -- CMD");
        assert_eq!(next(Place::Slurm, "guard", true), "srun zfolio run -- CMD");
        let free = next(Place::Host, "message", false);
        assert_eq!(free, "zfolio run --slowdown 5% -- CMD");
        let free = next(Place::Host, "protect", false);
        assert_eq!(free, "zfolio run --high 50% -- CMD");
    }
}
