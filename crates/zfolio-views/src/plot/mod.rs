//! `zfolio plot FILE -o OUT.svg|OUT.png`: what `zfolio run --record` wrote, as a picture.

mod phases;
#[cfg(feature = "png")]
mod png;
mod svg;

use crate::args::Plot;
use crate::record::{FORM, HeaderRead};
use crate::sample::{Counts, Sample, per_second};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use svg::{Curve, Panel, Strip, picture};
use zfolio_host::exit::{Failure, Status, one_line};
use zfolio_host::outfile::OutFile;
use zfolio_mm::PAGE_SIZE;

/// Longest title, in characters.
const TITLE: usize = 110;

/// Draws a record.
///
/// # Errors
/// When it cannot be read or drawn.
pub fn plot(args: &Plot) -> Result<ExitCode, Failure> {
    let usage =
        |what: &Path, why: &str, mend: &str| Failure::new(Status::Usage, what.display(), why, mend);
    let form = args.output.extension().and_then(|end| end.to_str());
    let Some(draw) = form.and_then(drawer) else {
        let forms = if cfg!(feature = "png") {
            ".svg or .png"
        } else {
            ".svg (this zfolio was built without PNG)"
        };
        let why = "says not which picture it is to be";
        let mend = format!("name a file that ends in {forms}");
        return Err(usage(&args.output, why, &mend));
    };
    let mend = "name a file that zfolio run --record wrote";
    let text = fs::read_to_string(&args.file)
        .map_err(|error| usage(&args.file, &error.to_string(), mend))?;
    let (header, samples) = parsed(&text).map_err(|why| usage(&args.file, &why, mend))?;
    let failed = |error| {
        let mend = "name a file in a directory you may write";
        Failure::new(Status::CannotCreate, args.output.display(), error, mend)
    };
    let out = OutFile::open(&args.output).map_err(failed)?;
    let picture = draw(drawn(&header, &samples)).map_err(|why| {
        let mend = "name a file that ends in .svg";
        Failure::new(Status::Internal, "drawing the PNG", why, mend)
    })?;
    out.finish(picture).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

/// What makes a picture's bytes of its SVG.
type Draw = fn(String) -> Result<Vec<u8>, String>;

/// That of a file name's ending.
fn drawer(ending: &str) -> Option<Draw> {
    match ending {
        "svg" => Some(|svg| Ok(svg.into_bytes())),
        #[cfg(feature = "png")]
        "png" => Some(|svg| png::png(&svg)),
        _ => None,
    }
}

/// The first line, and the samples. A last line that was cut off is left out: the run may last.
fn parsed(text: &str) -> Result<(HeaderRead, Vec<Sample>), String> {
    let mut lines = text.lines();
    let header = lines.next().ok_or("it is empty")?;
    let header: HeaderRead =
        serde_json::from_str(header).map_err(|error| format!("line 1: {error}"))?;
    if header.record != FORM {
        return Err(format!("it has form {}, this is for {FORM}", header.record));
    }
    let mut samples = Vec::new();
    let whole = text.ends_with('\n');
    let count = text.lines().count();
    for (number, line) in (2..).zip(lines) {
        match serde_json::from_str(line) {
            Ok(sample) => samples.push(sample),
            Err(_) if number == count && !whole => {}
            Err(error) => return Err(format!("line {number}: {error}")),
        }
    }
    match samples[..] {
        [] => Err("it has no sample".into()),
        _ => Ok((header, samples)),
    }
}

#[allow(clippy::cast_precision_loss, reason = "drawn a pixel wide")]
fn drawn(header: &HeaderRead, samples: &[Sample]) -> String {
    let largest = samples
        .iter()
        .map(|sample| {
            sample
                .memory
                .program_bytes
                .max(sample.memory.resident_bytes)
        })
        .max();
    let (unit, bytes) = match largest {
        Some(most) if most >= 4 << 30 => ("GiB", (1_u64 << 30) as f64),
        _ => ("MiB", (1_u64 << 20) as f64),
    };
    let length = samples.last().map_or(0.0, |sample| sample.time_s);
    let (time, seconds) = match length {
        ..600.0 => ("s", 1.0),
        ..36_000.0 => ("min", 60.0),
        _ => ("h", 3600.0),
    };
    let memory = |name, colour, dashed, of: fn(&Sample) -> u64| Curve {
        name,
        colour,
        dashed,
        values: samples
            .iter()
            .map(|sample| of(sample) as f64 / bytes)
            .collect(),
    };
    let rate = |name, colour, scale: f64, of: fn(&Counts) -> u64| {
        let pairs = samples.windows(2).map(|two| {
            let more = two[1].counts.since(&two[0].counts);
            per_second(of(&more), two[1].time_s - two[0].time_s) * scale
        });
        Curve {
            name,
            colour,
            dashed: false,
            values: [0.0].into_iter().chain(pairs).collect(),
        }
    };
    let mib = PAGE_SIZE as f64 / (1_u64 << 20) as f64;
    let panels = [
        Panel {
            axis: format!("memory ({unit})"),
            curves: vec![
                memory("program (what it needs bare)", "#0072b2", false, |of| {
                    of.memory.program_bytes
                }),
                memory("resident", "#d55e00", false, |of| of.memory.resident_bytes),
                memory("pool", "#009e73", false, |of| of.memory.pool_bytes),
                memory("high", "#666666", true, |of| of.high_bytes),
            ],
        },
        Panel {
            axis: "page faults served (1/s)".into(),
            curves: vec![rate("faults", "#0072b2", 1.0, |of| of.faults)],
        },
        Panel {
            axis: "moved (MiB/s)".into(),
            curves: vec![
                rate("out", "#d55e00", mib, |of| of.pages_out),
                rate("in", "#0072b2", mib, |of| of.pages_in),
            ],
        },
        Panel {
            axis: "waited at high (ms per s)".into(),
            curves: vec![rate("stall", "#cc79a7", 1e-6, |of| of.high_stall_ns)],
        },
    ];
    let times: Vec<f64> = samples
        .iter()
        .map(|sample| sample.time_s / seconds)
        .collect();
    let title: String = one_line(&header.command.join(" "))
        .chars()
        .take(TITLE)
        .collect();
    let strip = Strip {
        stretches: phases::strip(samples, seconds),
        legend: phases::legend().to_vec(),
    };
    picture(&title, &format!("time ({time})"), &times, &strip, &panels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Memory;

    const HEADER: &str = "{\"record\":1,\"command\":[\"a\",\"b\"],\"x\":2}\n";

    fn record(times: &[f64]) -> String {
        let lines = times.iter().zip(1..).map(|(time_s, number)| {
            let sample = Sample {
                time_s: *time_s,
                high_bytes: 32 << 20,
                processes: 1,
                memory: Memory {
                    program_bytes: number << 20,
                    ..Memory::default()
                },
                counts: Counts {
                    faults: number * 10,
                    ..Counts::default()
                },
            };
            serde_json::to_string(&sample).unwrap() + "\n"
        });
        HEADER.to_owned() + &lines.collect::<String>()
    }

    #[test]
    fn a_picture_has_axes_with_units_and_a_curve_for_each() {
        for (times, time) in [(&[0.0, 1.0, 3.0][..], "(s)"), (&[0.0, 700.0], "(min)")] {
            let (header, samples) = parsed(&record(times)).unwrap();
            let svg = drawn(&header, &samples);
            for part in [
                "memory (MiB)",
                "page faults served (1/s)",
                "moved (MiB/s)",
                ">waiting at high<",
                ">a b<",
                time,
            ] {
                assert!(svg.contains(part), "{part}: {svg}");
            }
            assert_eq!(svg.matches("<polyline").count(), 8);
        }
    }

    #[test]
    fn what_is_no_record_is_refused_and_a_last_line_may_be_cut() {
        let whole = record(&[0.0, 1.0]);
        assert_eq!(parsed(&whole).unwrap().1.len(), 2);
        assert_eq!(parsed(&whole[..whole.len() - 9]).unwrap().1.len(), 1);
        assert!(parsed(&format!("{whole}junk\n")).is_err());
        for text in ["", "junk", HEADER, "{\"record\":9,\"command\":[]}\n"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
