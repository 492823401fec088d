//! Words against a model that has them page by page.

extern crate std;
use super::most::FEWEST_LEAVES as LEAVES;
use super::*;
use core::sync::atomic::{AtomicBool, Ordering};
use proptest::prelude::*;
use std::collections::BTreeMap;
use zfolio_zswap::Slot;

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        (0_u8..4).prop_map(|heat| Word::Open { heat }),
        Just(Word::Kept),
        Just(Word::Untouched),
        Just(Word::Zero),
        Just(Word::Standby),
        (0_u32..64).prop_map(Word::Transit),
        (1_u32..1 << 28).prop_map(|slot| Word::Stored(Slot::from_u32(slot))),
        (1_u32..1 << 28).prop_map(|slot| Word::Clean(Slot::from_u32(slot))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn words_are_what_was_set_last(
        steps in proptest::collection::vec(
            prop_oneof![
                (0_usize..3000, word()).prop_map(|(page, word)| (page..page + 1, word)),
                (0_usize..3000, 1_usize..2000, any::<bool>()).prop_map(|(page, len, untouched)| {
                    (page..page + len, if untouched { Word::Untouched } else { Word::OPEN })
                }),
            ],
            1..60,
        )
    ) {
        let words = Words::reserve(Word::is_closed, LEAVES).unwrap();
        let mut model = BTreeMap::new();
        for (pages, word) in steps {
            let set = if pages.len() == 1 {
                words.set(pages.start, word)
            } else {
                words.set_run(pages.clone(), word == Word::Untouched)
            };
            prop_assert!(set);
            for page in pages {
                model.insert(page, word);
            }
            for page in (0..5200).step_by(7) {
                let expected = model.get(&page).copied().unwrap_or(Word::OPEN);
                prop_assert_eq!(words.get(page), expected);
            }
            let closed = model.values().filter(|word| word.is_closed()).count();
            prop_assert_eq!(words.closed(), closed);
            let of = |page| model.get(&page).copied().unwrap_or(Word::OPEN);
            let borders = (0..5200).filter(|page| {
                of(*page).is_closed() != page.checked_sub(1).is_some_and(|page| of(page).is_closed())
            });
            prop_assert_eq!(words.borders(), borders.count());
            let standby = model.values().filter(|word| **word == Word::Standby).count();
            prop_assert_eq!(words.standby(), standby);
            let transit = model.values().filter(|word| word.is_transit()).count();
            prop_assert_eq!(words.transit(), transit);
            let clean = model.values().filter(|word| word.is_clean()).count();
            prop_assert_eq!(words.clean(), clean);
            let first = model.iter().find(|(_, word)| word.slot().is_some()).map(|(page, _)| *page);
            prop_assert_eq!(words.next(0, 6000, |word| word.slot().is_some()), first);
            let first = model.iter().find(|(_, word)| word.is_closed()).map(|(page, _)| *page);
            prop_assert_eq!(words.next_closed(0, 6000), first);
            for leaf in 0..10 {
                for pages in [0..LEAF, 0..LEAF / 2, 100..LEAF, 17..18] {
                    let pages = leaf * LEAF + pages.start..leaf * LEAF + pages.end;
                    let of = |page| model.get(&page).copied().unwrap_or(Word::OPEN);
                    let any = pages.clone().any(|page| of(page).may_leave());
                    prop_assert_eq!(words.may_any_leave(&pages), any);
                }
            }
        }
    }

    #[test]
    fn areas_are_what_was_set_last(
        steps in proptest::collection::vec(
            prop_oneof![
                2 => (0_usize..6 * AREA, 1_usize..4 * AREA, -1_isize..2, any::<bool>()),
                1 => (0_usize..5, 2_usize..5, Just(0_isize), any::<bool>())
                    .prop_map(|(area, len, odd, untouched)| (area / 2 * AREA, len / 2 * AREA, odd, untouched)),
            ],
            1..12,
        ),
        single in proptest::collection::vec((0_usize..3 * AREA * LEAF, word()), 0..6),
    ) {
        const ALL: usize = 3 * AREA * LEAF;
        let words = Words::reserve(|word| word == Word::Untouched, LEAVES).unwrap();
        let mut model = std::vec![Word::OPEN; ALL];
        let mut single = single.into_iter();
        for (leaf, leaves, odd, untouched) in steps {
            let start = (leaf * LEAF / 2).min(ALL);
            let end = (start + leaves * LEAF).saturating_add_signed(odd).min(ALL);
            let word = if untouched { Word::Untouched } else { Word::OPEN };
            prop_assert!(words.set_run(start..end, untouched));
            model[start..end.max(start)].fill(word);
            if let Some((page, word)) = single.next() {
                prop_assert!(words.set(page, word));
                model[page] = word;
            }
            let closed = model.iter().filter(|word| word.is_closed()).count();
            prop_assert_eq!(words.closed(), closed);
            let mut before = false;
            let mut borders = 0;
            for page in model.iter().chain([&Word::OPEN]) {
                let is = *page == Word::Untouched;
                borders += usize::from(is != before);
                before = is;
            }
            prop_assert_eq!(words.borders(), borders);
            let all = words.next_closed(0, ALL);
            prop_assert_eq!(all, model.iter().position(|word| word.is_closed()));
            let touched = |word: &Word| *word != Word::Untouched;
            let past = words.past_untouched(0, ALL);
            prop_assert!(past <= model.iter().position(touched).unwrap_or(ALL));
            prop_assert!(past == ALL || words.has_leaf(past) || touched(&model[past]));
            let own = words.past_uniform(past, ALL);
            prop_assert!(model[past..own].chunks(LEAF).all(|leaf| leaf.iter().all(|word| *word == leaf[0])));
            prop_assert!(own == ALL || words.has_leaf(own));
        }
        for (page, word) in model.iter().enumerate() {
            prop_assert_eq!(words.get(page), *word);
        }
    }
}

#[test]
fn leaves_that_nobody_touches_any_more_are_given_back() {
    let words = Words::reserve(|word| word == Word::Untouched, LEAVES).unwrap();
    assert!(words.set_run(0..TOP * LEAF, true));
    for page in (0..TOP)
        .map(|leaf| leaf * LEAF + leaf % LEAF)
        .take(2 * LEAVES)
    {
        assert!(words.set(page, Word::OPEN), "{page}");
        assert!(words.has_leaf(page));
        assert!(words.set(page, Word::Untouched));
        assert!(!words.has_leaf(page) && words.get(page) == Word::Untouched);
    }
    assert_eq!((words.closed(), words.borders()), (TOP * LEAF, 2));
}

/// A leaf goes from one page to another and back while somebody reads: what is read is never the other's.
#[test]
fn who_reads_a_leaf_that_is_given_back_does_not_see_anothers_words() {
    let words = Words::reserve(|_| false, LEAVES).unwrap();
    let (one, other) = (7, 5 * LEAF + 7);
    let goes_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while goes_on.load(Ordering::Relaxed) {
                let word = words.get(one);
                assert!(matches!(word, Word::OPEN | Word::Untouched), "{word:?}");
            }
        });
        assert!(words.set_run(0..LEAF, true));
        for _ in 0..200_000 {
            assert!(words.set(one, Word::OPEN) && words.set(one, Word::Untouched));
            assert!(words.set(other, Word::Standby) && words.set(other, Word::OPEN));
        }
        goes_on.store(false, Ordering::Relaxed);
    });
    assert!(!words.has_leaf(one) && !words.has_leaf(other));
}
