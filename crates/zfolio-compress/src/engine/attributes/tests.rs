use super::*;
use std::string::ToString;

#[test]
fn every_attribute_is_set_by_its_name() {
    let mut all = Attributes::default();
    for (name, value) in [
        ("wqs_per_iaa", "4"),
        ("g_comp_wqs_per_iaa", "3"),
        ("distribute_comps", "0"),
        ("distribute_decomps", "1"),
        ("share", "0"),
        ("sync_mode", "async_irq"),
        ("batch_size", "32"),
        ("verify_compress", "on"),
        ("descriptors", "64"),
        ("retries", "7"),
        ("timeout_ns", "5"),
        ("unit_size", "65536"),
        ("decompress", "off"),
    ] {
        all.set(name, value).unwrap();
    }
    let expected = Attributes {
        queues_per_engine: 4,
        compress_queues: 3,
        distribute: Distribute {
            compress: false,
            decompress: true,
        },
        share: false,
        sync_mode: SyncMode::AsyncIrq,
        batch: 32,
        verify: true,
        descriptors: 64,
        retries: 7,
        timeout_ns: 5,
        unit: 65_536,
        decompress: Decompress::Never,
    };
    assert_eq!(all, expected);
    assert_eq!(all.sync_mode.name(), "async_irq");
    // As numbers and back; a number out of range is told by its name.
    let numbers = all.numbers();
    assert_eq!(numbers, [4, 3, 0, 1, 0, 2, 32, 1, 64, 7, 5, 65_536, 0]);
    assert_eq!(Attributes::from_numbers(&numbers), Ok(all));
    for (at, wrong) in [
        (0, 9),
        (1, 9),
        (2, 2),
        (3, 2),
        (4, 2),
        (5, 4),
        (6, 0),
        (7, 2),
    ]
    .into_iter()
    .chain([(8, 0), (9, u64::MAX), (10, 0), (11, 1 << 40), (12, 3)])
    {
        let mut changed = numbers;
        changed[at] = wrong;
        let told = Attributes::from_numbers(&changed).unwrap_err().to_string();
        assert!(told.starts_with(Attributes::NAMES[at]), "{told}");
    }
}

#[test]
fn what_may_change_is_what_no_queue_is_made_by() {
    let other = Attributes {
        queues_per_engine: 4,
        compress_queues: 3,
        distribute: Distribute {
            compress: false,
            decompress: true,
        },
        share: false,
        sync_mode: SyncMode::Sync,
        batch: 3,
        verify: true,
        descriptors: 5,
        retries: 7,
        timeout_ns: 9,
        unit: 8192,
        decompress: Decompress::Never,
    };
    let (own, mixed) = (
        Attributes::default().numbers(),
        Attributes::default().with_live_of(&other).numbers(),
    );
    for (at, name) in Attributes::NAMES.into_iter().enumerate() {
        let wanted = if Attributes::LIVE.contains(&name) {
            other.numbers()
        } else {
            own
        };
        assert_ne!(own[at], other.numbers()[at], "{name}");
        assert_eq!(mixed[at], wanted[at], "{name}");
    }
}

#[test]
fn descriptors_are_for_one_round_of_all_engines() {
    let of = |engines| Attributes::for_engines(engines).descriptors;
    assert_eq!([0, 1, 2, 3, 16].map(of), [32, 32, 16, 10, 8]);
    assert_eq!(Attributes::for_engines(2).check(), Ok(()));
    // 2 engines of 16 descriptors, a page in and a page and 64 bytes out, each.
    assert_eq!(
        Attributes::for_engines(2).buffer_bytes(2),
        2 * 16 * 2 * 4160
    );
}

#[test]
fn a_wrong_value_changes_nothing_and_says_what_is_expected() {
    let mut all = Attributes::default();
    for (name, value, told) in [
        ("wqs", "1", "there is no such attribute"),
        ("wqs_per_iaa", "9", "wqs_per_iaa: expected 1 to 8"),
        ("descriptors", "0", "descriptors: expected 1 to 64"),
        ("batch_size", "65", "batch_size: expected 1 to 64"),
        ("retries", "-1", "retries: expected a number"),
        ("distribute_comps", "2", "distribute_comps: expected 0 or 1"),
        (
            "sync_mode",
            "lazy",
            "sync_mode: expected sync, async, async_irq or assist",
        ),
        ("decompress", "1", "decompress: expected off, auto or on"),
    ] {
        assert_eq!(all.set(name, value).unwrap_err().to_string(), told);
    }
    assert_eq!(all, Attributes::default());
}
