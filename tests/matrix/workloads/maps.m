n = str2num(argv(){end});
a = zeros(n);
for i = 1:n
  a(:, i) = mod((1:n)' * i * 7919, 10007) / 10007;
end
b = a * a';
[q, r] = qr(a(1:floor(n / 3), 1:floor(n / 3)));
printf("%.6f %d\n", trace(b) / 1e6, norm(q * r - a(1:floor(n / 3), 1:floor(n / 3))) < 1e-8);
c = cell(1, 40 * n);
for i = 1:40 * n
  c{i} = sprintf("%d-%d", i, mod(i * 31, 977));
end
u = unique(c);
printf("%d %s %s\n", numel(u), u{100}, u{end});
