//! Batches to be decompressed, with engines on real threads.

use std::sync::atomic::Ordering;
use std::thread::{spawn, yield_now};
use zfolio_compress::engine::{Attributes, Decompress, Engines, Parallel};
use zfolio_compress::{Codec, CompressUnit, Compressor, DecompressUnit, sample};

fn pages() -> Vec<Vec<u8>> {
    let page = |at: u64| {
        let mut page = vec![0; 4096];
        sample::records(&mut page, 7 + at, at * 4096);
        page
    };
    (0..64).map(page).collect()
}

/// Loads: handed over where that was seen to take less, and right either way.
#[test]
fn what_is_loaded_goes_to_the_engines_as_the_attribute_says() {
    for (decompress, engines) in [
        (Decompress::Never, 0),
        (Decompress::Always, 2),
        (Decompress::Judged, 2),
    ] {
        let setup = Engines::default();
        let attributes = Attributes {
            decompress,
            descriptors: 64,
            ..Attributes::default()
        };
        setup.replace(attributes).unwrap();
        let codec = Codec::ZSTD.compressor();
        let group = setup.enable(2, 2, &*codec).unwrap();
        let parallel = Parallel::new(group.clone(), codec);
        let threads: Vec<_> = (0..2)
            .map(|index| {
                let (group, mut context) = (group.clone(), parallel.engine_context().unwrap());
                spawn(move || assert!(group.serve(index, &mut *context)))
            })
            .collect();
        while group.online() < 2 {
            yield_now();
        }
        let plain = Codec::ZSTD.compressor();
        let mut context = parallel.context().unwrap();
        let mut codec = plain.context().unwrap();
        let pages = pages();
        let packed: Vec<Vec<u8>> = pages
            .iter()
            .map(|page| {
                let mut buffer = vec![0; 8192];
                let mut unit = [CompressUnit::new(page, &mut buffer)];
                assert!(codec.compress_batch(&mut unit).all_ok());
                let len = unit[0].result.unwrap();
                buffer[..len].to_vec()
            })
            .collect();
        let mut batches = 0;
        for size in [1, 15, 16, 31, 32, 64].repeat(40) {
            let mut back = vec![vec![0; 4096]; size];
            let units = packed.iter().zip(&mut back);
            let mut units: Vec<_> = units
                .map(|(src, dst)| DecompressUnit::new(src, dst))
                .collect();
            assert!(context.decompress_batch(&mut units).all_ok());
            for (back, page) in back.iter().zip(&pages) {
                assert!(back == page, "{decompress:?}, {size}");
            }
            batches += u64::from(size >= 16);
        }
        let (queues, all) = group.totals();
        let handed = all.decomp_batches.load(Ordering::Relaxed);
        let inline = all.sw_decomp_batches.load(Ordering::Relaxed);
        let units = all.decomp_units.load(Ordering::Relaxed);
        match decompress {
            Decompress::Never => assert_eq!((handed, inline, queues.submitted), (0, batches, 0)),
            Decompress::Always => assert_eq!((handed, inline), (batches + 40, 0)),
            Decompress::Judged => {
                assert_eq!(handed + inline, batches);
                assert!(handed > 0 && inline > 0, "each is tried");
            }
        }
        assert!(units <= queues.completed && (engines > 0 || units == 0));
        assert_eq!(queues.output_bytes, 0, "nothing was compressed");
        // Nothing is handed over while they rest.
        group.rest(true);
        let before = group.totals().0.submitted;
        let mut back = vec![vec![0; 4096]; 32];
        let units = packed.iter().zip(&mut back);
        let mut units: Vec<_> = units
            .map(|(src, dst)| DecompressUnit::new(src, dst))
            .collect();
        assert!(context.decompress_batch(&mut units).all_ok());
        assert_eq!(group.totals().0.submitted, before);
        group.stop_all();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}
