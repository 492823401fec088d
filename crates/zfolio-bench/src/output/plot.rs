//! Line plots as SVG.

use plotters::prelude::*;

/// Width and height in SVG units.
const SIZE: (u32, u32) = (900, 520);

/// Colours that stay apart for the colour-blind (Okabe and Ito), by series.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// A named line through points.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws the series over common axes that begin at 0.
///
/// # Errors
/// What the drawing library says.
pub(crate) fn lines(title: &str, x: &str, y: &str, series: &[Series]) -> Result<String, String> {
    draw(title, x, y, series).map_err(|error| error.to_string())
}

fn draw(
    title: &str,
    x: &str,
    y: &str,
    series: &[Series],
) -> Result<String, Box<dyn std::error::Error>> {
    let points = || series.iter().flat_map(|s| &s.points);
    let right = points().map(|p| p.0).fold(1.0, f64::max);
    let top = points().map(|p| p.1).fold(1.0, f64::max);
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..right, 0.0..top * 1.05)?;
        chart.configure_mesh().x_desc(x).y_desc(y).draw()?;
        for (series, colour) in series.iter().zip(COLOURS.iter().cycle()) {
            let line = LineSeries::new(series.points.iter().copied(), colour);
            chart
                .draw_series(line)?
                .label(series.name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
        root.present()?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_is_drawn_and_named() {
        let series = ["first", "second"].map(|name| Series {
            name: name.to_owned(),
            points: vec![(0.0, 1.0), (10.0, 5.0)],
        });
        let svg = lines("a title", "size", "copies", &series).expect("drawn");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in ["a title", "size", "copies", "first", "second"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
