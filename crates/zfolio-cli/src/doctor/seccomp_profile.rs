//! `zfolio doctor --seccomp-profile BASE`: a container engine's profile with the one thing added that
//! serving faults in-thread needs and default profiles refuse.
//!
//! That is userfaultfd for the faults of user code alone (UFFD_USER_MODE_ONLY), which the kernel gives
//! to every user. The flag is demanded by the rule: a descriptor that stops the kernel's own
//! faults, for which profiles refuse the call, stays refused.

use crate::options::args::PODMAN_PROFILE;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::standard_output::print;

const CALL: &str = "userfaultfd";
/// UFFD_USER_MODE_ONLY of linux/userfaultfd.h.
const USER_MODE_ONLY: u32 = 1;

/// Prints the profile.
///
/// # Errors
/// `base` cannot be read, or is no profile.
pub(crate) fn write_out(base: &Path) -> Result<ExitCode, Failure> {
    let made = fs::read_to_string(base)
        .map_err(|error| error.to_string())
        .and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()))
        .and_then(|profile| with_user_faults(profile).map_err(str::to_owned));
    let profile = made.map_err(|why| {
        let what = format!("doctor --seccomp-profile {}", base.display());
        let mend = format!(
            "name the file of the profile that your containers have (podman: {PODMAN_PROFILE}; Docker: \
             profiles/seccomp/default.json of moby's sources)"
        );
        Failure::new(Status::Usage, what, why, mend)
    })?;
    print(&format!("{profile:#}\n")).map(|_| ExitCode::SUCCESS)
}

/// That profile with userfaultfd for user faults allowed.
///
/// A rule that names the call and refuses it loses the name: a filter that has a rule without
/// conditions for a call does not look at the conditional one.
fn with_user_faults(mut profile: Value) -> Result<Value, &'static str> {
    let rules = profile
        .get_mut("syscalls")
        .and_then(Value::as_array_mut)
        .ok_or("it has no list named syscalls, so it is no seccomp profile")?;
    for rule in rules.iter_mut() {
        if rule.get("action").and_then(Value::as_str) == Some("SCMP_ACT_ALLOW") {
            continue;
        }
        if let Some(names) = rule.get_mut("names").and_then(Value::as_array_mut) {
            names.retain(|name| name != CALL);
        }
    }
    rules.retain(|rule| {
        let names = rule.get("names").and_then(Value::as_array);
        names.is_none_or(|names| !names.is_empty())
    });
    rules.push(json!({
        "names": [CALL],
        "action": "SCMP_ACT_ALLOW",
        "args": [{
            "index": 0,
            "value": USER_MODE_ONLY,
            "valueTwo": USER_MODE_ONLY,
            "op": "SCMP_CMP_MASKED_EQ",
        }],
        "comment": "for faults of user code alone (UFFD_USER_MODE_ONLY): zfolio run --faults in-thread",
    }));
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_user_faults_are_allowed_and_nothing_else_changes() {
        let base = json!({
            "defaultAction": "SCMP_ACT_ERRNO",
            "syscalls": [
                { "names": ["read", "write"], "action": "SCMP_ACT_ALLOW" },
                { "names": ["bpf", "userfaultfd"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1 },
                { "names": ["userfaultfd"], "action": "SCMP_ACT_ERRNO" },
                { "names": ["userfaultfd"], "action": "SCMP_ACT_ALLOW",
                  "includes": { "caps": ["CAP_SYS_PTRACE"] } },
            ],
        });
        let made = with_user_faults(base.clone()).expect("a profile");
        let rules = made["syscalls"].as_array().expect("rules");
        assert_eq!(rules.len(), 4);
        assert_eq!(rules[0], base["syscalls"][0]);
        assert_eq!(rules[1]["names"], json!(["bpf"]));
        assert_eq!(rules[1]["errnoRet"], 1);
        assert_eq!(rules[2], base["syscalls"][3]);
        assert_eq!(rules[3]["args"][0]["op"], "SCMP_CMP_MASKED_EQ");
        assert_eq!(made["defaultAction"], base["defaultAction"]);
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        for no in [json!({}), json!([1]), json!({ "syscalls": 3 })] {
            assert!(with_user_faults(no).is_err());
        }
    }
}
