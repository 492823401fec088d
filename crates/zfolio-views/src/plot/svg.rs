//! Curves over time as SVG: panels above each other with one time axis.

use std::fmt::Write;

/// A curve: its name, colour, whether it is dashed, and a value at each time.
#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    pub(crate) colour: &'static str,
    pub(crate) dashed: bool,
    pub(crate) values: Vec<f64>,
}

/// A stretch of time in a colour.
#[derive(Debug)]
pub(crate) struct Stretch {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) colour: &'static str,
}

/// A strip above the panels: stretches, and what their colours mean.
#[derive(Debug, Default)]
pub(crate) struct Strip {
    pub(crate) stretches: Vec<Stretch>,
    pub(crate) legend: Vec<(&'static str, &'static str)>,
}

/// A panel: what its axis says, unit included, and its curves.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) axis: String,
    pub(crate) curves: Vec<Curve>,
}

const WIDTH: f64 = 900.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 86.0;
/// Of the strip: where it begins, and how tall it is.
const STRIP: (f64, f64) = (46.0, 10.0);
const HEIGHT: f64 = 190.0;
const BETWEEN: f64 = 50.0;
/// Lines of the grid, about.
const LINES: f64 = 5.0;

/// The picture. `times`: of all values, growing.
pub(crate) fn picture(
    title: &str,
    time_axis: &str,
    times: &[f64],
    strip: &Strip,
    panels: &[Panel],
) -> String {
    #[allow(clippy::cast_precision_loss, reason = "a handful of panels")]
    let height = TOP + panels.len() as f64 * (HEIGHT + BETWEEN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut svg, (LEFT, 20.0), "start", title);
    let mut top = TOP;
    let (begin, end) = match times {
        [first, .., last] => (*first, *last),
        [only] => (*only, *only + 1.0),
        [] => (0.0, 1.0),
    };
    draw_strip(&mut svg, strip, (begin, end));
    for panel in panels {
        one(&mut svg, panel, times, (begin, end), top);
        text(
            &mut svg,
            (f64::midpoint(LEFT, WIDTH - RIGHT), top + HEIGHT + 34.0),
            "middle",
            time_axis,
        );
        top += HEIGHT + BETWEEN;
    }
    svg.push_str("</svg>\n");
    svg
}

/// Where a time is, across.
fn x_of(time: f64, (begin, end): (f64, f64)) -> f64 {
    LEFT + (time - begin) / (end - begin).max(1e-9) * (WIDTH - LEFT - RIGHT)
}

fn draw_strip(svg: &mut String, strip: &Strip, span: (f64, f64)) {
    let (top, tall) = STRIP;
    let mut rect = |left: f64, top: f64, wide: f64, colour: &str| {
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{top}\" width=\"{wide:.1}\" height=\"{tall}\" fill=\"{colour}\"/>"
        );
    };
    for Stretch { from, to, colour } in &strip.stretches {
        let (left, right) = (x_of(*from, span), x_of(*to, span));
        rect(left, top, right - left, colour);
    }
    let mut left = LEFT;
    let mut words = Vec::new();
    for (name, colour) in &strip.legend {
        rect(left, top - 16.0, 18.0, colour);
        words.push((left + 24.0, *name));
        left += legend_width(name);
    }
    for (left, name) in words {
        text(svg, (left, top - 7.0), "start", name);
    }
}

/// What an entry of a legend takes, across.
fn legend_width(name: &str) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "some letters")]
    let letters = name.len() as f64;
    44.0 + letters * 7.2
}

fn one(svg: &mut String, panel: &Panel, times: &[f64], (begin, end): (f64, f64), top: f64) {
    let bottom = top + HEIGHT;
    let all = panel.curves.iter().flat_map(|curve| &curve.values);
    let largest = all.fold(0.0_f64, |largest, value| largest.max(*value));
    let step = step(if largest > 0.0 { largest } else { 1.0 });
    let highest = (largest / step).ceil().max(1.0) * step;
    let y = |value: f64| bottom - value / highest * HEIGHT;
    let x = |time| x_of(time, (begin, end));
    let mut line = 0.0;
    while line <= highest + step / 2.0 {
        let at = y(line);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>",
            WIDTH - RIGHT
        );
        text(svg, (LEFT - 6.0, at + 4.0), "end", &number(line, step));
        line += step;
    }
    let step = self::step((end - begin).max(1e-9));
    let mut line = (begin / step).ceil() * step;
    while line <= end + step / 1e6 {
        let at = x(line);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"{bottom}\" x2=\"{at:.1}\" y2=\"{}\" stroke=\"#888\"/>",
            bottom + 4.0
        );
        text(svg, (at, bottom + 17.0), "middle", &number(line, step));
        line += step;
    }
    let _ = writeln!(
        svg,
        "<text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(top, bottom),
        escaped(&panel.axis)
    );
    let mut legend = LEFT;
    for curve in &panel.curves {
        let points: Vec<String> = times
            .iter()
            .zip(&curve.values)
            .map(|(time, value)| format!("{:.1},{:.1}", x(*time), y(*value)))
            .collect();
        let dashes = if curve.dashed {
            " stroke-dasharray=\"6 4\""
        } else {
            ""
        };
        let Curve { name, colour, .. } = curve;
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dashes} points=\"{}\"/>",
            points.join(" ")
        );
        let at = top - 8.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{legend}\" y1=\"{}\" x2=\"{}\" y2=\"{0}\" stroke=\"{colour}\" stroke-width=\"3\"{dashes}/>",
            at - 4.0,
            legend + 18.0
        );
        text(svg, (legend + 24.0, at), "start", name);
        legend += legend_width(name);
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, what: &str) {
    let what = escaped(what);
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{what}</text>"
    );
}

/// As it may stand between tags; what XML cannot have is left out.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A round number of which some make up `span`: 1, 2 or 5 with zeros.
fn step(span: f64) -> f64 {
    let rough = span / LINES;
    let ten = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| rough <= factor * ten * 1.000_001);
    factor.unwrap_or(10.0) * ten
}

/// With as many digits as lines `step` apart need.
fn number(value: f64, step: f64) -> String {
    let digits = (0..9).find(|digits| {
        let scaled = step * 10_f64.powi(*digits);
        (scaled - scaled.round()).abs() < 1e-6
    });
    let digits = usize::try_from(digits.unwrap_or(9)).unwrap_or(9);
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (span, expected) in [
            (1.0, 0.2),
            (7.0, 2.0),
            (100.0, 20.0),
            (0.03, 0.01),
            (26.0, 10.0),
        ] {
            let told = step(span);
            assert!((told / expected - 1.0).abs() < 1e-6, "{span}: {told}");
        }
        assert_eq!(number(0.6, 0.2), "0.6");
        assert_eq!(number(40.0, 20.0), "40");
    }

    #[test]
    fn no_value_leaves_its_panel_and_no_text_is_a_tag() {
        let curve = |values: &[f64]| Curve {
            name: "a",
            colour: "#000",
            dashed: true,
            values: values.to_vec(),
        };
        for (times, values) in [
            (&[0.0, 1.0, 2.5][..], &[0.0, 17.0, 3.0][..]),
            (&[5.0], &[0.0]),
            (&[], &[]),
        ] {
            let panel = Panel {
                axis: "<MiB> & more".into(),
                curves: vec![curve(values)],
            };
            let svg = picture("a<b>&\u{1}", "time (s)", times, &Strip::default(), &[panel]);
            assert!(svg.contains("a&lt;b&gt;&amp; ") && svg.contains("&lt;MiB&gt; &amp; more"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            let points = svg.split("points=\"").nth(1).unwrap();
            let points = points.split('"').next().unwrap();
            for point in points.split_whitespace() {
                let (x, y) = point.split_once(',').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!((LEFT..=WIDTH - RIGHT).contains(&x), "{point}");
                assert!((TOP..=TOP + HEIGHT).contains(&y), "{point}");
            }
        }
    }
}
