//! Tables of text: columns as wide as their widest cell, names to the left,
//! figures to the right.

/// A table being filled.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column names.
    pub(crate) fn new<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self {
            rows: vec![names.into_iter().map(Into::into).collect()],
        }
    }

    /// Adds a row of as many cells.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let row: Vec<String> = cells.into_iter().map(Into::into).collect();
        debug_assert_eq!(row.len(), self.rows[0].len(), "a cell per column");
        self.rows.push(row);
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The lines. A column whose first cell below the name is not a number is
    /// one of names.
    pub(crate) fn text(&self) -> String {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let names = |column: usize| {
            let first = self.rows.get(1).and_then(|row| row[column].chars().next());
            first.is_some_and(|c| !c.is_ascii_digit() && c != '-' && c != '+')
        };
        let left: Vec<bool> = (0..columns).map(names).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, width), left) in row.iter().zip(&widths).zip(&left) {
                if *left {
                    line.push_str(&format!("{cell:<width$}  "));
                } else {
                    line.push_str(&format!("{cell:>width$}  "));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A figure with so many digits; `-` where there is none.
pub(crate) fn shown(figure: Option<f64>, digits: usize) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_left_and_figures_right() {
        let mut table = Table::new(["what", "n", "share"]);
        table.row(["a", "5", "-1.5 %"]);
        table.row(["longer", "1000", "+20.0 %"]);
        let expected = "what       n    share\na          5   -1.5 %\nlonger  1000  +20.0 %\n";
        assert_eq!(table.text(), expected);
    }
}
